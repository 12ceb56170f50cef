//| # Which block reads which keys
//|
//| A plan gives each block a list of *segments*: some tiles of keys of one sequence and key head, for one
//| tile of rows. There are two plans.
//|
//| * **Equal parts** (steps 4 and 5). Every item, a tile of rows with all its keys, is cut into the same
//|   number of parts, one block each. If one sequence is long and the others short, the long one's blocks
//|   keep reading when all others are done. If there are many items, none is cut, and a block may process
//|   several.
//| * **Equal work** (from step 6 on). A key head's tiles are numbered consecutively over all sequences, and
//|   each block takes an equal range of numbers, wherever an item ends. Two blocks differ by at most one
//|   tile, whatever the lengths. (The idea is stream-K's, arXiv 2301.03598.)
//|
//| **Teams.** In `[batch, seqlen, kv_heads, d]` the keys of a token's heads are neighbours in memory, and
//| DRAM is fastest if neighbours are read at about the same time. If all heads shared one numbering, blocks
//| would have consecutive heads of a sequence, but reach the same key at different times. So the blocks form
//| teams, with as many members as a sequence has items. The teams share out the keys of all sequences, and
//| the members of a team read the same keys side by side, each for its own item.
//|
//| Lengths change with every token, so the plan is not made on the host. Each warp sums the lengths itself,
//| which takes less time than loading its first tile. If all lengths are equal, step 7's host computes the
//| plan (`EvenPlan`).
//|
//| ![Eight blocks over time: with uneven lengths equal parts take 20 tiles, equal work
//| 8](../../docs/figures/equal_work.svg)
#pragma once
#include "chapters/08_decoding/problem.cuh"

namespace flashbook::decoding {

//| **Shares.** Each of `count` blocks gets `all / count` units, and the first `all % count` blocks get one
//| more. These two numbers determine where a share begins, and which share has a given unit.
/// `all` units divided among `count`, all >= count.
struct Shares {
  int each, more;  ///< each block has `each`, the first `more` have one more

  /// Returns the first unit of share i, or for i = count the number of units.
  __device__ int begin(int i) const { return i * each + min(i, more); }
  /// Returns the share that `unit` belongs to.
  __device__ int of(int unit) const {
    const int in_larger = more * (each + 1);
    return unit < in_larger ? unit / (each + 1) : more + (unit - in_larger) / each;
  }
};

/// The host's part of the plan.
struct Plan {
  // Only Rules (rules.cuh) sets these,
  static constexpr bool kWindow = false, kFunctions = false, kSinks = false, kRagged = false, kPadded = false;
  static constexpr bool kEven = false;  // and only EvenPlan sets this
  device::Divisor parts;                ///< equal parts: parts per item; equal work: 1
  int equal_work;                       ///< whether the plan is equal work: 1 or 0
  device::Divisor row_tiles;            ///< tiles of rows per pack
  device::Divisor items_of_sequence;    ///< packs * row_tiles
  device::Divisor team;                 ///< equal work: blocks that read the same keys side by side
  int first_key;                        ///< another launch reads earlier keys
  int parts_of_last = 48;               ///< parts that the last to arrive merges, at most

  //| A block gets everything else from the plan: a plan with [rules](rules.cuh) decides for each sequence.
  /// Returns the first key that is read of a sequence of `length`.
  __device__ int first_key_of(const Problem&, int /*batch*/, int /*length*/) const { return first_key; }
  /// Returns the number of keys from there on that no query sees.
  __device__ int hidden_keys(const Problem&, int /*batch*/, int /*length*/) const { return 0; }
  /// A pack's rows and tiles of rows, a sequence's items, and where a pack's rows of Q and O are.
  __device__ int rows_of(const Problem& problem, int /*pack*/) const { return problem.rows(); }
  __device__ const device::Divisor& row_tiles_of(const Problem&, int /*batch*/) const { return row_tiles; }
  __device__ int items_of(const Problem&, int /*batch*/) const { return items_of_sequence; }
  /// Returns how many items of a sequence each member of a team works on.
  __device__ int rounds_of(const Problem& problem, int batch) const {
    return items_of(problem, batch) / team;
  }
  __device__ Pack rows_at(const Problem& problem, int pack) const { return problem.pack_of(pack); }
  /// Columns of the tensors, where a tile has kHeadDim.
  template <int kHeadDim>
  __device__ static constexpr int columns() {
    return kHeadDim;
  }
  /// The number of units in an item of `tiles` tiles, and the block that has a unit.
  __device__ int units_of(int tiles) const { return max(tiles, 1); }
  __device__ int block_of(int unit, const Shares& shares) const { return shares.of(unit); }
};

//| If all sequences are equally long, the host can work it out. Then no block adds up lengths, and divisions
//| become multiplications. A call of step 7 takes 0.6 to 0.9 µs less: code that runs once comes from memory,
//| at some 15 clocks per instruction ([the appendix](appendix.md#latents-the-beginning-and-the-end)).
/// Equal work for equally long sequences. (Step 7)
struct EvenPlan : Plan {
  static constexpr bool kEven = true;
  int units;                           ///< units in total
  device::Divisor units_per_block;     ///< units per block; the last one may have fewer
  device::Divisor units_per_item;      ///< units per item
  device::Divisor units_per_sequence;  ///< units per sequence

  __device__ const device::Divisor& units_of(int /*tiles*/) const { return units_per_item; }
  __device__ int rounds_of(const Problem&, int /*batch*/) const { return items_of_sequence; }
  __device__ int block_of(int unit, const Shares&) const { return unit / units_per_block; }
};

//| A segment records which other blocks work on its item. The blocks of an item's parts are consecutive, so
//| the first one's number and the count are enough to find all partial results.
/// Some tiles of keys for one tile of rows. Merged with its item's other parts if there is more than one.
struct Segment {
  int pack;  ///< number over batch and packs: Problem::pack_of
  int row_tile;
  int length;      ///< keys in the sequence
  int begin, end;  ///< tiles of keys, counted from first_key_of; begin == end: the sequence is empty
  int part, parts;
  int first_block;  ///< the block of part 0; part i belongs to block first_block + i
};

//| Producer and consumers of a block go through the same segments. Each warp computes them itself, since
//| getting them from another warp would mean waiting for it.
/// A block's place in the plan.
struct PlaceInPlan {
  Shares shares = {0, 0};  ///< shares of the blocks that have units; each = 0: equal parts
  int base = 0;            ///< units before `batch`; with equal parts, the block's part
  int batch = 0;
  int unit = 0;         ///< the next unit, counted from `base`; with equal parts, the item
  int member = 0;       ///< the block's number in its team
  int first_block = 0;  ///< the block with this member's first share
  int left = 0;         ///< units left; with equal parts, whether there is an item
};

/// The segments of a block, one after another. Each warp has its own copy and advances it in step with the
/// others. `PlanType` is Plan, Rules, or EvenPlan.
template <int kKeys, typename PlanType = Plan>
class Segments {
 public:
  using Place = PlaceInPlan;
  Place at;

  /// The segments of this block in a launch of `blocks` blocks. All lanes of a warp.
  __device__ __forceinline__ Segments(const PlanType& plan, const Problem& problem, int blocks)
      : plan_(plan), problem_(problem) {
    //| A tile of keys for one tile of rows is a *unit*. An empty sequence's item also counts as one, so that
    //| some block writes its zeros. First, sum up all units, with each lane adding every 32nd sequence.
    if (PlanType::kEven || !plan.equal_work) return;
    int all = 0;
    for (int batch = lane(); batch < problem.batch; batch += 32) all += units_of_sequence(batch);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) all += __shfl_xor_sync(kWholeWarp, all, distance);
    teams_ = blocks / plan.team;
    shares_ = min(teams_, all);
    if (PlanType::kRagged) shares_ = max(shares_, 1);  // the batch may have no query
    at.shares = {all / shares_, all % shares_};
  }

  //| A block begins where its share does. With the host's plan, all numbers for that are known.
  /// Goes to the first segment of a block. All lanes of a warp.
  __device__ __forceinline__ void begin(int block) {
    if constexpr (PlanType::kEven) {
      const int first = block * plan_.units_per_block;
      at.left = min(int(plan_.units_per_block), plan_.units - first);
      at.batch = first / plan_.units_per_sequence;
      at.base = at.batch * plan_.units_per_sequence;
      at.unit = first - at.base;
      return;
    }
    if (!plan_.equal_work) {
      at.left = 1;
      at.unit = block / plan_.parts;
      at.base = block % plan_.parts;
      return;
    }
    at.member = block / teams_;
    at.first_block = at.member * teams_;
    const int share = block - at.first_block;
    if (share >= shares_) return;  // more teams than units: this block's team has none
    const int first = at.shares.begin(share);
    at.left = at.shares.begin(share + 1) - first;

    //| Find the sequence that contains the block's first unit, by prefix sums over 32 sequences at a time.
    for (int group = 0;; group += 32) {
      const int own = group + lane() < problem_.batch ? units_of_sequence(group + lane()) : 0;
      int sum = own;  // sum over the lanes up to this one
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const int before = __shfl_up_sync(kWholeWarp, sum, distance);
        if (lane() >= distance) sum += before;
      }
      const unsigned beyond = __ballot_sync(kWholeWarp, at.base + sum > first);
      if (beyond != 0) {
        const int found = __ffs(int(beyond)) - 1;
        at.batch = group + found;
        at.base += __shfl_sync(kWholeWarp, sum - own, found);
        at.unit = first - at.base;
        return;
      }
      at.base += __shfl_sync(kWholeWarp, sum, 31);
    }
  }

  //| The kernel that merges many parts needs the opposite: which blocks had parts of an item?
  /// Item `number` of the launch as one segment: all its tiles, and the blocks that had its parts. All lanes
  /// of a warp.
  __device__ __forceinline__ Segment whole_item(int number) const {
    const int batch = number / plan_.items_of_sequence, item = number % plan_.items_of_sequence;
    Segment segment = item_of(batch, item);
    segment.begin = 0;
    segment.end = tiles_of(batch, segment.length);
    segment.part = 0;
    segment.parts = 0;
    if (PlanType::kRagged && item >= plan_.items_of(problem_, batch)) return segment;  // others have more
    if (!plan_.equal_work) {
      segment.first_block = number * plan_.parts;
      segment.parts = plan_.parts;
      return segment;
    }
    //| With equal work, the units of all earlier sequences are summed again.
    int base = 0;  // units of all earlier sequences
    for (int i = lane(); i < batch; i += 32) base += units_of_sequence(i);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) base += __shfl_xor_sync(kWholeWarp, base, distance);
    const int units = max(segment.end, 1);
    share(segment, item % plan_.team * teams_, base + item / plan_.team * units, units);
    return segment;
  }

  //| **The next segment.** With equal parts a block has one segment, or one for each of its items. With equal
  //| work it takes the rest of its current item, up to the units that it has left, and moves on to the next.
  /// Sets the block's next segment; returns false if there are no more.
  __device__ __forceinline__ bool next(Segment& segment) {
    if (at.left == 0) return false;
    if (!PlanType::kEven && at.shares.each == 0) {
      if constexpr (PlanType::kRagged)  // a sequence of fewer queries than the longest has fewer items
        while (at.unit % plan_.items_of_sequence >=
               plan_.items_of(problem_, at.unit / plan_.items_of_sequence)) {
          at.unit += int(gridDim.x);
          at.left = at.unit < problem_.batch * plan_.items_of_sequence;
          if (at.left == 0) return false;
        }
      const int item = at.unit, part = at.base;
      segment = item_of(item / plan_.items_of_sequence, item % plan_.items_of_sequence);
      const int tiles = tiles_of(segment.pack / problem_.packs, segment.length);
      const Shares shares = {tiles / plan_.parts, tiles % plan_.parts};
      segment.begin = shares.begin(part);
      segment.end = shares.begin(part + 1);
      segment.part = part;
      segment.parts = plan_.parts;
      segment.first_block = int(blockIdx.x) - part;
      //| With fewer blocks than uncut items, a block's next item is one grid further.
      at.unit += int(gridDim.x);
      at.left = at.unit < problem_.batch * plan_.items_of_sequence;
      return true;
    }
    //| The numbers alone determine which other blocks work on the same item: `Shares::of` returns the blocks
    //| that have its first and its last unit.
    const int length = problem_.length(at.batch), tiles = tiles_of(at.batch, length);
    decltype(auto) units = plan_.units_of(tiles);
    const int round = at.unit / units, begin = at.unit % units, taken = min(units - begin, at.left);
    segment = item_of(at.batch, PlanType::kEven ? round : round * plan_.team + at.member);
    segment.begin = min(begin, tiles);
    segment.end = min(begin + taken, tiles);
    share(segment, PlanType::kEven ? 0 : at.first_block, at.base + round * units, units);
    segment.part = int(blockIdx.x) - segment.first_block;
    at.left -= taken;
    at.unit += taken;
    if (at.unit == units * plan_.rounds_of(problem_, at.batch)) {
      at.base += at.unit;
      at.unit = 0;
      ++at.batch;
      if constexpr (PlanType::kRagged)  // sequences without queries have no items
        while (at.left > 0 && plan_.items_of(problem_, at.batch) == 0) ++at.batch;
    }
    return true;
  }

  //| An empty sequence has one unit and no tiles, so its segment ends where it begins. The block that gets it
  //| writes zeros, and -inf.
 private:
  __device__ static int lane() { return threadIdx.x % 32; }
  __device__ int tiles_of(int batch, int length) const {
    return (max(length - plan_.first_key_of(problem_, batch, length), 0) + kKeys - 1) / kKeys;
  }
  __device__ int units_of_sequence(int batch) const {
    return max(tiles_of(batch, problem_.length(batch)), 1) * plan_.rounds_of(problem_, batch);
  }
  /// Sets which blocks have the `units` units of an item, of which `first` is the first. `first_block` is the
  /// block with the first share of this team member.
  __device__ void share(Segment& segment, int first_block, int first, int units) const {
    const int first_share = plan_.block_of(first, at.shares);
    segment.first_block = first_block + first_share;
    segment.parts = plan_.block_of(first + units - 1, at.shares) - first_share + 1;
  }
  /// Returns a segment's item, without its tiles and parts.
  __device__ Segment item_of(int batch, int item) const {
    Segment segment;
    decltype(auto) row_tiles = plan_.row_tiles_of(problem_, batch);
    segment.pack = batch * problem_.packs + item / row_tiles;
    segment.row_tile = item % row_tiles;
    segment.length = problem_.length(batch);
    return segment;
  }

  const PlanType& plan_;
  const Problem& problem_;
  int teams_ = 0, shares_ = 0;  ///< teams, and shares that have units
};

}  // namespace flashbook::decoding
