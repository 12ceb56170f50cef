//| # Masks and lists, transposed
//|
//| The forward pass must know which keys a query sees. A block that owns keys must know *which queries see a
//| key*. For a window that is the same arithmetic with left and right exchanged. FlashMask stores exactly
//| what is needed: intervals of queries, by key. And the tiles of queries that a tile of keys needs are a
//| column of the picture of tiles, where the forward pass reads a row.
//|
//| ![Four masks in tiles: forward reads a row of such a picture, step 6 a
//| column](../../docs/figures/mask_tiles.svg)
#pragma once
#include "chapters/09_masks/step1_dense.cuh"
#include "chapters/09_masks/step4_flashmask.cuh"
#include "chapters/09_masks/step5_mask_functions.cuh"
#include "chapters/09_masks/step6_backward_problem.cuh"
#include "common/hopper/gradient_round.h"

namespace flashbook::masks {

//| ## The keys of a block

/// A block's work: a tile of keys, of one key head and one sequence.
struct KeyWork {
  Sequence sequence;  // first, so that it is aligned to 16 bytes in shared memory
  Head head;
  MapRows q_rows, k_rows;
  int first_key;  ///< the tile's first key in the sequence; negative: no more work
  int tile;       ///< its number among the head's tiles
  int first_row;  ///< the sequence's first row, among the head's rows in the workspace
  int rounds;     ///< tiles of queries, over all heads of the group
};

//| The forward pass's `Varlen` and `InBatch` number tiles of queries. `KeyTiles` numbers tiles of keys in the
//| same way: chapter 5's order for batch entries, the plan for packed sequences. `make_plan` sorts documents
//| by their keys and counts tiles of queries. The host passes it keys and queries exchanged, so it sorts by
//| queries and counts tiles of keys. A long document still comes first.
/// The tiles of keys of a launch.
struct KeyTiles {
  TileOrder order;  ///< order of key heads, if sequences are batch entries
  Plan plan;        ///< plan of packed sequences, with keys and queries exchanged
  int heads_of_section;
  bool last_first;  ///< whether a head's last tiles come first (step 7)

  /// Sets the places of the work's tile, whose head and number are known.
  template <int kKeys>
  __device__ void locate(KeyWork& work, const GradientProblem& problem) const {
    const int tile = work.tile;
    if (problem.varlen.count == 0) {
      work.sequence = {0, problem.seqlen_q, 0, problem.seqlen_k};
      work.q_rows = work.k_rows = {0, 0, work.head.batch};
      work.first_key = tile * kKeys, work.first_row = 0;
      return;
    }
    //| A thread finds a packed tile's document by binary search. The forward pass's producer searches with a
    //| whole warp; here one thread takes tiles, with one search per tile of keys.
    int begin = 0, end = problem.varlen.count - 1;  // the last whose tiles begin at this one or before it
    while (begin < end) {
      const int middle = (begin + end + 1) / 2;
      if (plan.first_tile[middle] <= tile)
        begin = middle;
      else
        end = middle - 1;
    }
    work.first_key = (tile - plan.first_tile[begin]) * kKeys;
    const int document = plan.sorted[begin];
    const Sequence s = problem.varlen.at(document);
    work.sequence = s;
    work.q_rows = varlen_rows(s.first_query, s.queries);
    work.k_rows = varlen_rows(s.first_key, s.keys);
    work.first_key = (tile - plan.first_tile[begin]) * kKeys;
    work.first_row = problem.workspace_row_of(document);
  }

  //| **Order.** Under a causal mask the first keys are seen by the most queries, so a head's first tiles are
  //| processed first. Chapter 5's order has the last tiles first, which is right for queries. So tiles are
  //| numbered from the other end, as in chapter 7.
  /// Sets head and number of the launch's tile `index`. Returns whether there is one.
  __device__ bool take(KeyWork& work, const GradientProblem& problem, int index) const {
    if (problem.varlen.count == 0) {
      const WorkTile tile = tile_at(order, index);
      work.head = tile.head;
      work.tile = last_first ? tile.query_tile : order.tiles_of_head - 1 - tile.query_tile;
      return tile.query_tile >= 0;
    }
    const int tiles = plan.first_tile[problem.varlen.count];
    if (tiles == 0 || index / tiles >= problem.kv_heads) return false;
    const int first_head = index / (tiles * heads_of_section) * heads_of_section;
    const int heads = min(heads_of_section, problem.kv_heads - first_head),
              place = index - first_head * tiles;
    work.head = {first_head + place % heads, 0};
    work.tile = last_first ? tiles - 1 - place / heads : place / heads;
    return true;
  }
};

//| ## The queries of a key
//|
//| In the forward pass a query has two ranges of keys: the prefix and the window. A key has *one* range of
//| queries. A key of the prefix is seen by all of them, a sink by all at or after it, any other key by
//| queries `own - right` to `own + left`, where `own` is the query at the key's own place. FlashMask's two
//| intervals may hide it from some of these.
/// The queries that see a key.
struct QueriesOfKey {
  int begin, end;

  __device__ bool sees(int query) const { return (query >= begin) & (query < end); }
  /// Returns the range counted from query `first`.
  __device__ QueriesOfKey from(int first) const { return {begin - first, end - first}; }
};

/// Returns the queries, in the sequence, that see its key `key` by a window and a prefix.
__device__ inline QueriesOfKey queries_of_key(const Band& band, const Sequence& s, int key) {
  if (key >= s.keys) return {0, 0};
  const int own = key - s.keys + s.queries;  // the query at the key's own place
  const bool all_later = key < band.prefix || key < band.sinks || band.left == Band::kNoLimit;
  const bool all_before = key < band.prefix || band.right == Band::kNoLimit;
  return {all_before ? 0 : max(own - band.right, 0),
          all_later ? s.queries : min(own + band.left + 1, s.queries)};
}

//| ## The queries of a tile of keys
//|
//| From key to key the beginning of the range moves down, and so does its end, except that the ranges of
//| sinks and prefix extend to the last query. So three keys determine a tile: the first, the last, and the
//| first that is neither sink nor prefix. Queries from the *first* key's beginning to the *largest* end see
//| some key of the tile. Queries from the *last* key's beginning to the *least* end, that of the third key,
//| see all of them.
/// The queries that see a key of a tile, and those that see all of them.
struct QueriesOfTile {
  int begin, end;
  int all_begin, all_end;

  __device__ TileClass classify(int first_query, int last_query) const {
    if (last_query < begin || first_query >= end) return TileClass::skip;
    return first_query >= all_begin && last_query < all_end ? TileClass::full : TileClass::partial;
  }
};

/// Returns the queries for the keys from `first_key` to `last_key`, which the sequence has.
__device__ inline QueriesOfTile queries_of_tile(const Band& band, const Sequence& s, int first_key,
                                                int last_key) {
  const int usual = min(max(first_key, max(band.prefix, band.sinks)), last_key);
  const QueriesOfKey first = queries_of_key(band, s, first_key), last = queries_of_key(band, s, last_key);
  return {first.begin, max(first.end, last.end), last.begin, queries_of_key(band, s, usual).end};
}

//| ## Masks of step 6
//|
//| A mask answers two questions, as in the forward pass, with the roles exchanged:
//|
//| | member | meaning |
//| | --- | --- |
//| | `tiles<kKeys, kQueries>(work, list)` | a value with `classify(tile, first_query, last_query)`; `begin` to `end` are the candidates |
//| | `column(work, head, key)` | a value with `sees(query)` |
//| | `kByIntervals` | whether a column is an interval; then `hidden(head, key)` may hide two more |
//|
//| The first mask covers everything that ranges and intervals can express: full, causal, windows, sinks,
//| prefixes, documents, FlashMask. One type is enough, since a key always has one range and two intervals.
/// A mask by window, prefix, documents and intervals.
struct IntervalMask {
  static constexpr bool kByIntervals = true;
  Band band;
  DocumentBounds documents;  ///< documents as a mask; none if sequences are packed
  Scanned scanned;           ///< null pointers: no intervals
  int key_tiles;             ///< tiles of keys per head
  int tile_keys;             ///< keys per tile
  int lists_of_batch;        ///< rows of intervals, and lists, per batch entry
  device::Divisor heads_of_list;

  /// Returns the document of a key: the last that begins at or before it, since documents without keys begin
  /// where the next one does.
  __device__ int document_of(int key) const {
    return DocumentBounds{documents.first_key, documents.first_query, documents.count}.find(key);
  }

  __device__ QueriesOfKey column(const KeyWork& work, const Head&, int key) const {
    //| If documents are a mask, the key determines the document. A key past the end has no queries.
    if (documents.count == 0 || key >= work.sequence.keys) return queries_of_key(band, work.sequence, key);
    const Sequence own = documents.at(document_of(key));
    return queries_of_key(band, own, key - own.first_key).from(-own.first_query);
  }

  /// Whether intervals hide further queries, and which. A row has whole tiles of keys.
  __device__ bool has_intervals() const { return scanned.hidden != nullptr; }
  __device__ Hidden hidden(const Head& q, int key) const {
    const int64_t list = q.batch * lists_of_batch + q.head / heads_of_list;
    return scanned.hidden[list * key_tiles * tile_keys + key];
  }

  //| Ranges and intervals each give a class, and the more restrictive one counts: `TileClass` ascends from
  //| skip to full.
  /// The tiles of queries for a tile of keys.
  struct Tiles {
    QueriesOfTile by_band;
    const HiddenOfTile* hidden;  // null if there are none
    int begin, end;              ///< tiles of queries that may see a key of the tile

    __device__ TileClass classify(int, int first_query, int last_query) const {
      const TileClass band = by_band.classify(first_query, last_query);
      if (hidden == nullptr || band == TileClass::skip) return band;
      const TileClass columns = hidden->classify(first_query, last_query);
      return columns < band ? columns : band;
    }
  };

  template <int kKeys, int kQueries>
  __device__ Tiles tiles(const KeyWork& work, int list) const {
    const Sequence& s = work.sequence;
    const int last_key = min(work.first_key + kKeys, s.keys) - 1;
    QueriesOfTile queries = queries_of_tile(band, s, work.first_key, last_key);
    //| A tile that holds the end of a document and the beginning of the next is partial for every tile of
    //| queries of these documents.
    if (documents.count > 0) {
      const int first = document_of(work.first_key), last = document_of(last_key);
      const Sequence own = documents.at(first);
      if (first == last)
        queries = queries_of_tile(band, own, work.first_key - own.first_key, last_key - own.first_key);
      const int moved = first == last ? own.first_query : 0;
      queries = first == last ? QueriesOfTile{queries.begin + moved, queries.end + moved,
                                              queries.all_begin + moved, queries.all_end + moved}
                              : QueriesOfTile{own.first_query, documents.first_query[last + 1], 0, 0};
    }
    //| A tile that reaches past the last key is partial, too: TMA loads zeros for the missing keys, and
    //| without a mask their scores of 0 would have a probability.
    if (work.first_key + kKeys > s.keys) queries.all_end = queries.all_begin;
    const bool any = queries.begin < queries.end;
    return {queries,
            scanned.tiles == nullptr ? nullptr : scanned.tiles + int64_t(list) * key_tiles + work.tile,
            any ? queries.begin / kQueries : 0, any ? ceil_div(queries.end, kQueries) : 0};
  }
};

//| The second mask is evaluated pair by pair: bytes from memory (step 1) or listed blocks (step 5). Any other
//| function of a query and a key would be such a mask, too. A function has no transpose, so a thread
//| evaluates it as in the forward pass, with the key fixed and the query running. Step 5's kernel has
//| classified its tiles beforehand, pair by pair.
/// A mask by bytes or by blocks.
struct PairMask {
  static constexpr bool kByIntervals = false;
  const unsigned char* visible;  // [batch, heads_of_mask, seqlen_q, seqlen_k], or null
  int heads_of_mask;
  int seqlen_q, seqlen_k;
  BlockMask blocks;          ///< used if there are no bytes
  const TileClass* classes;  // [lists, query tiles, key tiles]
  int query_tiles, key_tiles;

  __device__ bool sees(const Head& q, int query, int key) const {
    if (visible == nullptr) return blocks.row(q.batch, q.head, query).sees(key);
    const int64_t head = int64_t(q.batch) * heads_of_mask + (heads_of_mask == 1 ? 0 : q.head);
    return visible[(head * seqlen_q + query) * seqlen_k + key] != 0;
  }

  /// A row, for the kernel that classifies tiles.
  struct Row {
    const PairMask& mask;
    Head head;
    int query;

    __device__ bool sees(int key) const { return mask.sees(head, query, key); }
  };
  __device__ Row row(int batch, int head, int query) const { return {*this, {head, batch}, query}; }

  //| Rows and keys past the end are not evaluated: there is no byte for them.
  struct Column {
    const PairMask& mask;
    Head head;
    int key;

    __device__ bool sees(int query) const {
      return query < mask.seqlen_q && key < mask.seqlen_k && mask.sees(head, query, key);
    }
  };
  __device__ Column column(const KeyWork&, const Head& q, int key) const { return {*this, q, key}; }

  struct Tiles {
    const TileClass* classes;  // for this tile of keys, beginning with query tile 0
    int key_tiles;
    int begin, end;

    __device__ TileClass classify(int tile, int, int) const { return classes[int64_t(tile) * key_tiles]; }
  };
  template <int kKeys, int kQueries>
  __device__ Tiles tiles(const KeyWork& work, int list) const {
    return {classes + int64_t(list) * query_tiles * key_tiles + work.tile, key_tiles, 0, query_tiles};
  }
};

//| ## Functions on scores, and their derivatives
//|
//| A function on scores changes the gradient, too. P * (dP - D) is the derivative by the score that the
//| softmax saw, but dQ and dK need the one by the score that the product computed. By the chain rule that
//| adds one factor, the function's slope.
//|
//| **ALiBi** subtracts something that does not depend on the score, so its slope is 1. With a fixed key the
//| distance changes by one from query to query.
//|
//| **Softcap.** With $y = 1/(1 + e^{-2s/c})$ the score is $2c\,y - c$ and its derivative
//| $1 - \tanh^2(s/c) = 4y(1-y)$. It must be taken of the score *before* the mask. After the mask a hidden key
//| would have $y = -\infty$ and so an infinite slope; its probability is 0, and 0 times infinity is NaN. So
//| the mask makes the probability 0 and leaves $y$ alone (`to_probabilities_with_slope` in
//| `step6_backward_block.cuh`).
//|
//| **Softcap, then ALiBi.** The slope is the softcap's alone. `slope` takes it from the softcap's result,
//| `after` is what ALiBi makes of that, and only the exponential uses `after`.

/// The function on a key's scores, for queries counted from a thread's first query. The slope is 1.
struct UnchangedColumn {
  static constexpr bool kHasSlope = false;
  __device__ float operator()(float score, int) const { return score; }
};
__device__ inline UnchangedColumn score_column(const Unchanged&, const KeyWork&, const Head&, int, int) {
  return {};
}

/// ALiBi of a key: slope * |query - own|.
struct AlibiColumn {
  static constexpr bool kHasSlope = false;
  float slope, own;  ///< its slope, and the query at the key's own place

  __device__ float operator()(float score, int query) const {
    return score - slope * fabsf(float(query) - own);
  }
};
//| If documents are a mask, both places of a visible pair are in one document, so the key's document gives
//| the distance. A key past the end is hidden anyway. A packed sequence's number, needed if it has its own
//| slopes, follows from its rows in the workspace: sequence b begins at tile
//| $\lfloor \mathrm{first\_query}_b / 128 \rfloor + b$.
__device__ inline AlibiColumn score_column(const Alibi& alibi, const KeyWork& work, const Head& q, int key,
                                           int first_query) {
  Sequence s = work.sequence;
  const DocumentBounds& documents = alibi.ranges.documents;
  int number = documents.count > 0 ? 0 : q.batch;
  if (documents.count > 0 && key < s.keys) {
    number = DocumentBounds{documents.first_key, documents.first_query, documents.count}.find(key);
    s = documents.at(number);
  } else {
    number += work.first_row / kWorkspaceRows - s.first_query / kWorkspaceRows;
    s.first_query = s.first_key = 0;
  }
  return {alibi.slopes[number * alibi.to_sequence + q.head] * alibi.per_scale,
          float(key - s.first_key - s.keys + s.queries + s.first_query - first_query)};
}

//| **A bias by distance** also has slope 1. With a fixed key the distance falls by one from query to
//| query. The bias is learned, so it may need a gradient, too (`step6_bias.cuh`).
/// A bias, and where its gradient goes.
struct LearnedBias : DistanceBias {
  float* gradient;  // [heads, 2 * reach + 1], 0 at the start; null: not wanted

  /// Returns where a head's number of distance 0 is.
  __device__ int64_t middle_of(int head) const { return head * (2 * int64_t(reach) + 1) + reach; }
};

/// Returns the query at a key's place in its sequence, or in its document if documents are a mask.
__device__ inline int query_at(const DocumentBounds& documents, const Sequence& s, int key) {
  if (documents.count == 0 || key >= s.keys) return key - s.keys + s.queries;
  const Sequence own =
      documents.at(DocumentBounds{documents.first_key, documents.first_query, documents.count}.find(key));
  return key - own.first_key - own.keys + own.queries + own.first_query;
}

//| A distance is an index relative to the entry of distance 0, and may be negative.
/// A bias by distance of a key.
struct BiasColumn {
  static constexpr bool kHasSlope = false;
  const float* middle;  ///< the entry of distance 0
  int reach, own;       ///< the table's reach, and the query at the key's own place
  float per_scale;

  __device__ float operator()(float score, int query) const {
    return score + middle[min(max(own - query, -reach), reach)] * per_scale;
  }
};
__device__ inline BiasColumn score_column(const LearnedBias& bias, const KeyWork& work, const Head& q,
                                          int key, int first_query) {
  return {bias.bias + bias.middle_of(q.head), bias.reach,
          query_at(bias.ranges.documents, work.sequence, key) - first_query, bias.per_scale};
}

//| A softcap is the same for all keys, and its slope follows from its result.
/// Softcap of any key.
struct SoftcapColumn : Softcap {
  static constexpr bool kHasSlope = true;
  __device__ static float slope(float y) { return 4 * y * (1 - y); }
  __device__ static float after(float y, int) { return y; }
};
__device__ inline SoftcapColumn score_column(const Softcap& softcap, const KeyWork&, const Head&, int, int) {
  return {softcap};
}

/// A function with a slope, and one without after it.
template <typename First, typename Second>
struct ComposedColumn {
  static_assert(First::kHasSlope && !Second::kHasSlope, "the slope is taken of what the first gives");
  static constexpr bool kHasSlope = true;
  First first;
  Second second;

  __device__ float operator()(float score, int query) const { return first(score, query); }
  __device__ static float slope(float y) { return First::slope(y); }
  __device__ float after(float y, int query) const { return second(y, query); }
};
//| Both columns are made by the functions above.
/// The type that `score_column` returns for a function on scores. The host's compiler sees no body of a
/// kernel's function, so it cannot deduce a return type.
template <typename Score>
using ColumnOf = decltype(score_column(std::declval<const Score&>(), std::declval<const KeyWork&>(),
                                       std::declval<const Head&>(), 0, 0));
template <typename First, typename Second>
__device__ ComposedColumn<ColumnOf<First>, ColumnOf<Second>> score_column(
    const Composed<First, Second>& score, const KeyWork& work, const Head& q, int key, int first_query) {
  return {score_column(score.first, work, q, key, first_query),
          score_column(score.second, work, q, key, first_query)};
}

/// Whether a function on scores has a slope other than 1.
template <typename Score>
constexpr bool kHasSlope = ColumnOf<Score>::kHasSlope;

//| ## Lists
//|
//| Four threads of a block load tiles or add to dQ, and must agree on the tiles of queries and their order.
//| So they read one list in memory. It has an entry for each tile that is not skipped: the tile's number, and
//| one bit for whether it is partial. Heads that share a mask share its lists.
/// The position of the list for a tile of keys.
struct QueryList {
  int first, count;  ///< its first entry among those of all lists; its number of entries

  __host__ __device__ static int entry(int tile, bool partial) { return 2 * tile + partial; }
  __host__ __device__ static int tile(int entry) { return entry / 2; }
  __host__ __device__ static bool is_partial(int entry) { return entry % 2 != 0; }
};

/// All lists of a launch, in device memory.
struct Lists {
  QueryList* tile_lists;  // [lists, key tiles]
  int* entries;
  int* turns;          ///< per entry: how many blocks add to the tile's dQ before it; null: no order
  int* semaphores;     ///< [tiles of the workspace, consumers]: blocks that have added; 0 at the start
  int key_tiles;       ///< tiles of keys per head, or an upper bound
  int lists_of_batch;  ///< lists per batch entry; 0: all share them
  device::Divisor heads_of_list;

  __device__ QueryList at(const Head& q, int tile) const {
    return tile_lists[(q.batch * lists_of_batch + q.head / heads_of_list) * key_tiles + tile];
  }
};

//| A warp makes a list. Each lane determines the class of one tile of queries, and a ballot collects 32
//| answers. It goes through the tiles twice: first it counts, then adds the count to a counter in memory,
//| whose old value is where its entries begin, and the second time it writes them. So lists are densely
//| packed, in any order, and the lists of a window have no more entries than it has tiles.
//|
//| **Where a list begins.** Without a mask all tiles of keys have the same list, and all blocks would begin
//| by adding to the same dQ at the same time. So the list of tile j begins with its j-th entry and wraps
//| around. A causal mask does not need this: its lists begin on the diagonal, each with a different tile.
constexpr int kListThreads = 128;

/// Writes, for each mask, the lists of its `lists.key_tiles` tiles of keys. Grid: (tiles / 4, masks).
template <int kKeys, int kQueries, typename Mask>
__global__ void __launch_bounds__(kListThreads)
    list_queries(const __grid_constant__ Mask mask, const __grid_constant__ GradientProblem problem,
                 const __grid_constant__ KeyTiles tiles, const __grid_constant__ Lists lists, bool rotate,
                 int* entries) {  // number of entries, 0 at the start
  wait_for_launch_before();
  //| The last warps of the grid may have no tile. The plan determines the number of tiles of packed
  //| sequences; the host launches the grid for the largest possible number.
  const int tile = (blockIdx.x * kListThreads + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (tile >= lists.key_tiles) return;
  if (problem.varlen.count > 0 && tile >= tiles.plan.first_tile[problem.varlen.count]) return;
  KeyWork work{};
  work.tile = tile;
  tiles.template locate<kKeys>(work, problem);
  const auto seen = mask.template tiles<kKeys, kQueries>(work, int(blockIdx.y));
  //| A block that stores dQ processes all queries of the sequence, since those that see no key need zeros.
  const bool all = problem.is_stored(work.sequence);
  const int begin_tile = all ? 0 : seen.begin,
            end_tile = all ? ceil_div(work.sequence.queries, kQueries) : seen.end;
  const auto class_of = [&](int query_tile) {
    if (query_tile >= end_tile) return TileClass::skip;
    const int first_query = query_tile * kQueries;
    const auto found =
        seen.classify(query_tile, first_query, min(first_query + kQueries, work.sequence.queries) - 1);
    return all && found == TileClass::skip ? TileClass::partial : found;
  };
  int count = 0;
  for (int first = begin_tile; first < end_tile; first += 32)
    count += __popc(__ballot_sync(kWholeWarp, class_of(first + lane) != TileClass::skip));
  int begin = 0;
  if (lane == 0) {
    begin = atomicAdd(entries, count);
    lists.tile_lists[int64_t(blockIdx.y) * lists.key_tiles + tile] = {begin, count};
  }
  begin = __shfl_sync(kWholeWarp, begin, 0);
  //| An entry's place is the number of entries before it, shifted by the rotation.
  const int start = rotate && count > 0 ? tile % count : 0;
  int before = count - start;
  for (int first = begin_tile; first < end_tile; first += 32) {
    const TileClass found = class_of(first + lane);
    const uint32_t those = __ballot_sync(kWholeWarp, found != TileClass::skip);
    const int place = before + __popc(those & ((1u << lane) - 1));
    if (found != TileClass::skip)
      lists.entries[begin + (place >= count ? place - count : place)] =
          QueryList::entry(first + lane, found == TileClass::partial);
    before += __popc(those);
  }
}

//| ## Turns
//|
//| Step 7 adds to a tile of dQ from the last keys to the first, as chapter 7's deterministic step does. There
//| the turns follow from arithmetic; here a mask may have any holes. So each entry is given a turn: the
//| number of later tiles of keys that its queries see. A lane evaluates the mask for each of them. These are
//| 262,000 evaluations of a few comparisons at 8192 tokens, where tiles have 64 queries.
/// Writes the turn of each entry. Grid: that of list_queries, which has written the lists.
template <int kKeys, int kQueries, typename Mask>
__global__ void __launch_bounds__(kListThreads)
    number_turns(const __grid_constant__ Mask mask, const __grid_constant__ GradientProblem problem,
                 const __grid_constant__ KeyTiles tiles, const __grid_constant__ Lists lists) {
  const int tile = (blockIdx.x * kListThreads + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (tile >= lists.key_tiles) return;
  if (problem.varlen.count > 0 && tile >= tiles.plan.first_tile[problem.varlen.count]) return;
  KeyWork work{};
  work.tile = tile;
  tiles.template locate<kKeys>(work, problem);
  const QueryList list = lists.tile_lists[int64_t(blockIdx.y) * lists.key_tiles + tile];
  for (int i = list.first + lane; i < list.first + list.count; i += 32) {
    const int query_tile = QueryList::tile(lists.entries[i]), first_query = query_tile * kQueries;
    const int last_query = min(first_query + kQueries, work.sequence.queries) - 1;
    int turn = 0;
    for (KeyWork later = work; (later.first_key += kKeys) < work.sequence.keys;) {
      ++later.tile;
      const auto seen = mask.template tiles<kKeys, kQueries>(later, int(blockIdx.y));
      if (query_tile >= seen.begin && query_tile < seen.end)
        turn += seen.classify(query_tile, first_query, last_query) != TileClass::skip;
    }
    lists.turns[i] = turn;
  }
}

}  // namespace flashbook::masks
