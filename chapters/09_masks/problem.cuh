//| # The problem and the policies
//|
//| One kernel serves steps 1 to 5. It is chapter 5's last kernel: a producer, consumers, a pipeline,
//| persistent blocks. The steps differ in a template parameter, the **policy**, a small type that answers
//| four questions:
//|
//| | question | asked by | answer |
//| | --- | --- | --- |
//| | which tile of queries has this number? | the deciding warp | `policy.work(problem, index)` |
//| | which tiles of keys may it see? | the same | `policy.tiles(work, last_query)`: a `span` of them, and `classify(first_key)` |
//| | which keys does this query see? | consumers, in partial tiles | `policy.row(work, query)`, which has `sees(key)` |
//| | what becomes of a score? | consumers, in all tiles | `policy.score.row(work, query)`, called with a score and its key |
//|
//| It also provides the number of tiles of queries (`policy.count(problem)`), and lists in `kExtras` what it
//| does beyond these questions. For each extra the kernel calls the functions below; without an extra, it has
//| no code for it.
//|
//| | extra | what it is for | functions |
//| | --- | --- | --- |
//| | `prepared` | an earlier launch makes a plan or classifies tiles | none: the kernel waits for that launch |
//| | `documents` | most tiles of queries lie within one document | `document_of_all`, `row_in`, `has_prefix` |
//| | `hidden_by_key` | keys hide queries (step 4) | `hidden` |
//| | `shared_tiles` | heads share a tile (step 8) | `head_bits`, a number |
//| | `producer` | keys and values are in pages (step 8) | `produce` |
//|
//| So a mask costs nothing where it hides nothing: the loop over full tiles has no code for it, and tiles in
//| which no query sees a key are never loaded.
//|
//| ![Four masks in tiles: most tiles are skipped, some are full, and those where a mask cuts are
//| partial](../../docs/figures/mask_tiles.svg)
#pragma once
#include "common/attention/visibility.h"
#include "common/hopper/problem.h"

namespace flashbook::masks {

using namespace hopper;

//| A misspelt extra does not compile, nor does an extra without its functions, nor functions without their
//| extra (`names_its_extras`, below).
/// What a policy does beyond the four questions.
struct Extras {
  bool prepared = false;
  bool documents = false;
  bool hidden_by_key = false;
  bool shared_tiles = false;
  bool producer = false;
};

//| A function on scores (`policy.score`) lists its extras in the same way; by default there are none.
/// What a function on scores does.
struct ScoreExtras {
  bool changes = false;  ///< changes scores, by `row`, `scale_log2` and `score_offset`
  bool keys = false;     ///< takes a score's key, also in full tiles
  bool drops = false;    ///< drops probabilities, by `dropout`
};

//| ## Sequences
//|
//| A batch entry is a sequence, and in step 2 so is each packed document. All code counts queries and keys
//| from the beginning of their sequence; only loads and stores use its place in the tensor.
/// The rows of Q and of K that belong together.
struct Sequence {
  int first_query, queries;
  int first_key, keys;
};

//| A tensor map has five dimensions: column, row, panel, and two more. For batch entries these are head and
//| batch entry. For packed sequences the fourth combines the head with the sequence's end, and the fifth is a
//| constant (`step2_varlen.cuh`).
/// The distances of a tensor's heads and rows in the fourth dimension of its map.
struct MapStrides {
  int head = 1, row = 0;
};

/// Where TMA finds a sequence's rows: from its row 0 on.
struct MapRows {
  int row;  ///< the map's row of the sequence's first row
  int end;  ///< the tensor's row after the sequence's last; 0 for batch entries, whose maps end where they do
  int last;  ///< the index in the map's last dimension: the batch entry, or a constant

  /// Returns the last two indices for a head's rows.
  __device__ Head of(int head, const MapStrides& strides) const {
    return {head * strides.head + end * strides.row, last};
  }
};

//| A warp decides on a tile of queries and broadcasts it. Consumers need no list of tiles, only two numbers,
//| since partial tiles come first. `document` spares them the search for a row's document, which takes three
//| dependent loads for eight documents, and then the loads of its bounds.
/// A block's work: a tile of queries, of one head and one sequence.
struct Work {
  Head head;
  Sequence sequence;
  MapRows q_rows, k_rows;
  int first_query;         ///< the tile's first query in the sequence; negative: no more work
  int partial;             ///< partial tiles of keys, which come first
  int full;                ///< full tiles of keys, which follow
  Sequence document = {};  ///< the document of all its queries; empty if there are several
};

//| ## Which tiles
//|
//| The tiles of keys that a tile of queries may need are its *candidates*. They are numbered: first those of
//| the *prefix*, the first keys of a sequence, which a mask may also show (`step3_ranges.cuh`), then those of
//| the window. Tiles between a prefix and a distant window are not candidates, so they are not even
//| classified.
/// The tiles of keys that a tile of queries may need.
struct Span {
  int prefix;  ///< this many tiles at the beginning of the sequence,
  int begin;   ///< then tiles from this one on,
  int count;   ///< this many candidates in total

  __device__ int tile(int candidate) const {
    return candidate < prefix ? candidate : begin + candidate - prefix;
  }

  /// Tiles of `tile` keys that cover both ranges: of keys below `prefix_end`, and of `begin` to `end` - 1.
  __device__ static Span of(int prefix_end, int begin, int end, int tile) {
    const int prefix = ceil_div(prefix_end, tile);
    const int first = max(begin / tile, prefix), last = begin < end ? ceil_div(end, tile) : 0;
    return {prefix, first, prefix + max(last - first, 0)};
  }
};

//| With documents, the keys of a query depend on its document, which must be found first. `document_of_all`
//| finds the document of a whole tile of queries. `row_in` has the keys of a query whose document is known,
//| and `has_prefix` returns whether a query may see a prefix. A sequence without documents counts as one
//| document. Where a policy has no such functions, each row searches for its own.
/// A policy, or a mask, with the functions for documents.
template <typename Mask>
concept CountsInDocuments = requires(const Mask& mask, const Work& work) {
  mask.document_of_all(work, 0);
  mask.row_in(work.document, 0);
  mask.has_prefix();
};

//| A warp searches with all its lanes: each reads one of 32 positions in the remaining range.

/// Returns which of `count` ascending numbers is the last that is at most `place`; the first is 0. All lanes
/// of a warp.
__device__ inline int last_at_most(const int* ascending, int count, int place) {
  int begin = 0;
  while (count > 1) {
    const int step = (count + 31) / 32, offset = int(threadIdx.x % 32) * step;
    const bool is_before = offset < count && ascending[begin + offset] <= place;
    const int last = (__popc(__ballot_sync(kWholeWarp, is_before)) - 1) * step;
    begin += last;
    count = min(step, count - last);
  }
  return begin;
}

//| ## Heads that share a tile
//|
//| A tile of queries has rows of one head. In step 8 up to four heads that read the same keys share it (as in
//| chapter 8): 2^`head_bits` of them. The first head has the first 16, 32 or 64 of a consumer's 64 rows, and
//| so on, so a thread's two rows, 8 apart, belong to one head. The rest of the kernel treats such heads as
//| one.
/// Returns the number of queries per head among `rows` rows of a tile.
template <typename Policy>
__device__ __forceinline__ int queries_among(const Policy& policy, int rows) {
  if constexpr (Policy::kExtras.shared_tiles)
    return rows >> policy.head_bits;
  else
    return rows;
}

//| The lowest bits of a row's number are its query, the others its head.
/// Returns the query of row `row` of a consumer's tile, counted within its head.
template <typename Policy>
__device__ __forceinline__ int query_of_row(const Policy& policy, int row) {
  if constexpr (Policy::kExtras.shared_tiles)
    return row & (queries_among(policy, kRowsPerWarpgroup) - 1);
  else
    return row;
}

/// Returns the query head of this thread's two rows; `head` is that of its tile. `Number` is an integer.
template <typename Policy, typename Number>
__device__ __forceinline__ Number head_of_row(const Policy& policy, Number head) {
  if constexpr (Policy::kExtras.shared_tiles)
    return (head << policy.head_bits) +
           int(threadIdx.x % kWarpgroup / 32 * kRowsPerWarp) / queries_among(policy, kRowsPerWarpgroup);
  else
    return head;
}

//| ## What a policy must have
//|
//| An extra and the functions that come with it must go together, or a mask might be dropped silently.
template <typename Policy>
concept HidesByKey = requires(const Policy& policy, const Work& work) {
  policy.hidden(work, 0);
};  ///< a policy that hides single keys
template <typename Policy>
concept SharesTiles = requires(const Policy& policy) {
  policy.head_bits;
};  ///< a policy whose tiles have rows of several heads

/// Returns whether a policy names the extras whose functions it has, and no others.
template <typename Policy>
constexpr bool names_its_extras() {
  constexpr Extras kNamed = Policy::kExtras;
  return kNamed.documents == CountsInDocuments<Policy> && kNamed.hidden_by_key == HidesByKey<Policy> &&
         kNamed.shared_tiles == SharesTiles<Policy>;
}

//| Everything else about a launch is the same for all policies.
/// The shape of one launch, without the mask.
struct Problem {
  int batch, seqlen_q, seqlen_k;
  device::Divisor heads;  ///< query heads per batch entry
  device::Divisor group;  ///< query heads that share one key head (1 unless grouped-query)
  MapStrides q_map_strides, k_map_strides, v_map_strides, o_map_strides;
  float scale_log2;   ///< scale * log2(e): exp(scale * s) is 2^(scale_log2 * s)
  Strides o_strides;  ///< strides of O, for stores without a tensor map
  int head_dim;       ///< columns of O, or of all tensors of a gradient; tiles may have more
  int blocks = 0;     ///< blocks in the launch: gridDim.x would take a register
};

//| ## Tile sizes
//|
//| The sizes are as in chapter 5. At d = 64 three consumers hide more of the softmax than two, but leave each
//| thread only 160 registers. That is enough for comparisons; a mask that reads memory, or a function on
//| scores, gets two consumers and 232 registers.
//|
//| Consumers alternate at d = 64 and d = 128. Chapter 5 does so at d = 128 only up to 2048 tokens, where rows
//| end before the consumers fall into alternation by themselves. Under a window or documents, rows are short
//| in sequences of any length.
/// The sizes of the kernel for a head dimension, and which of chapter 5's switches it uses. `kLight`: the
/// mask takes a few comparisons at most.
template <int kHeadDim_, bool kLight>
struct KernelTraits {
  static constexpr int kHeadDim = kHeadDim_, kValueDim = kHeadDim;
  static constexpr bool kTwoRings = false;  ///< keys and values pass through one pipeline
  static constexpr int kConsumers =
      kHeadDim == 64 && kLight ? 3 : 2;  ///< warpgroups that multiply, 64 queries each
  static constexpr int kRows = kConsumers * kRowsPerWarpgroup;
  static constexpr int kKeys = kHeadDim == 256 ? 64 : 128;  ///< keys per tile
  static constexpr int kStages = kHeadDim == 64 ? 8 : 5;    ///< stages of the pipeline
  static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
  static constexpr bool kStoreByTma =
      kHeadDim != 256;  // no space for more queries next to Q and the pipeline
  static constexpr int kQueryPlaces = kStoreByTma ? 2 : 1;  ///< tiles of queries in shared memory
  static constexpr bool kPingpong = kHeadDim != 256;
  static constexpr int kProducerRegisters = kConsumers == 3 ? 32 : 40;  ///< per thread, after setmaxnreg
  static constexpr int kConsumerRegisters = kConsumers == 3 ? 160 : 232;
};

//| **Wide keys.** In DeepSeek's prompts a key has 192 columns, 64 of which carry its position, and a value
//| has 128. At 128 keys per tile K takes 48 KB, V 32 KB and the queries of both consumers 48 KB. Four equal
//| stages would not fit in 227 KB, since a value would occupy a key's space. So keys and values have separate
//| rings of two stages: 48 + 2 (48 + 32) = 208 KB. There is no space for outputs, which are stored from
//| registers, as at d = 256. Registers are those of d = 128, because O has 128 columns.
/// The sizes for keys of 192 columns and values of 128.
struct WideKeys : KernelTraits<128, true> {
  static constexpr int kHeadDim = 192;
  static constexpr bool kTwoRings = true;
  static constexpr int kStages = 2;  ///< stages of each ring
  static constexpr bool kStoreByTma = false;
  static constexpr int kQueryPlaces = 1;
};

}  // namespace flashbook::masks
