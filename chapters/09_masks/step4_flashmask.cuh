//| # Step 4: FlashMask
//|
//| FlashMask (arXiv 2410.01359) is a compromise between a formula and N^2 bytes. It stores, for each *key*,
//| at most two intervals of queries that must not see it, one below the diagonal and one above. Four numbers
//| per key are enough for documents, windows and prefixes, causal or not, and each head and batch entry may
//| have its own mask. They are not enough for a key that is hidden from three separate intervals of queries.
//|
//| ![A question and two answers as one number per key, and its least and largest in each tile of
//| keys](../../docs/figures/mask_columns.svg)
#pragma once
#include "chapters/09_masks/step3_ranges.cuh"

namespace flashbook::masks {

//| ## Least and largest
//|
//| A tile of keys is skipped if all its keys hide all queries of the tile, and full if none hides any. To
//| determine that, the producer need not read the bounds of 128 keys: the least and the largest of each bound
//| are enough. Suppose that even the interval that begins last has begun by the tile's first query, and even
//| the one that ends first ends after its last query. Then every key is hidden from every query.
//|
//| | | lower interval | upper interval |
//| | --- | --- | --- |
//| | skip, if | largest begin <= first query, and last query < least end | the same |
//| | no key hides any, if | last query < least begin, or largest end <= first query | the same |
//|
//| The rule is *conservative*. If the lower interval hides half of the keys and the upper one the other half,
//| no query sees the tile, but it is called partial. That costs time but never gives a wrong result.

/// The queries that must not see a key: two intervals, ends not included.
struct alignas(16) Hidden {
  int lower_begin, lower_end, upper_begin, upper_end;

  /// Bit r: whether it hides query `first` + r. The ones are the rows before its end that are not before its
  /// beginning.
  __device__ uint32_t hidden_rows(int first) const {
    const auto below = [&](int query) { return (1u << min(max(query - first, 0), kRowsPerWarp)) - 1; };
    return (below(lower_end) & ~below(lower_begin)) | (below(upper_end) & ~below(upper_begin));
  }
};

/// The least and the largest bounds of a tile's keys.
struct HiddenOfTile {
  Hidden least, largest;

  __device__ TileClass classify(int first_query, int last_query) const {
    if (largest.lower_begin <= first_query && last_query < least.lower_end) return TileClass::skip;
    if (largest.upper_begin <= first_query && last_query < least.upper_end) return TileClass::skip;
    const bool no_lower = last_query < least.lower_begin || largest.lower_end <= first_query;
    const bool no_upper = last_query < least.upper_begin || largest.upper_end <= first_query;
    return no_lower && no_upper ? TileClass::full : TileClass::partial;
  }
};

//| ## The scan
//|
//| A small kernel runs first, with one warp per tile of keys. It writes all four bounds of each key, since
//| the user may leave out those that have a default. Keys past the end get bounds that hide them from every
//| query. So the array has whole tiles, and the attention kernel reads it without a check.

/// The intervals as the user gives them (Columns in common/attention/visibility.h).
struct ColumnBounds {
  const int* queries;  // [batch, heads, seqlen_k, bounds]
  int bounds;          ///< bounds per key: 1, 2 or 4
  bool causal;         ///< if so, two bounds are those of the lower interval

  //| If there are two bounds, the second is the lower interval's end under a causal window, and the upper
  //| interval's end without one.
  __device__ Hidden at(int64_t row, int queries_of_head) const {  // row of [batch, heads, seqlen_k]
    const int* const bound = queries + row * bounds;
    if (bounds == 1) return {bound[0], queries_of_head, 0, 0};
    if (bounds == 4) return {bound[0], bound[1], bound[2], bound[3]};
    if (causal) return {bound[0], bound[1], 0, 0};
    return {bound[0], queries_of_head, 0, bound[1]};
  }
};

//| The scan writes 16 bytes per key and 32 per tile of keys. At 8192 keys that is 130 KB per head, compared
//| with 64 MB for pairs.
/// The scan's results in device memory.
struct Scanned {
  Hidden* hidden;       // [batch, heads, tiles of keys, keys of a tile]
  HiddenOfTile* tiles;  // [batch, heads, tiles of keys]
};

//| A warp finds the least and the largest over its 32 lanes in five rounds of shuffles, each of which
//| exchanges the four bounds one after the other.
constexpr int kScanThreads = 128;

/// Returns the least, or the largest, of each bound over the lanes of a warp.
template <typename Choose>
__device__ inline Hidden reduce_warp(Hidden hidden, const Choose& choose) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    hidden.lower_begin =
        choose(hidden.lower_begin, __shfl_xor_sync(kWholeWarp, hidden.lower_begin, distance));
    hidden.lower_end = choose(hidden.lower_end, __shfl_xor_sync(kWholeWarp, hidden.lower_end, distance));
    hidden.upper_begin =
        choose(hidden.upper_begin, __shfl_xor_sync(kWholeWarp, hidden.upper_begin, distance));
    hidden.upper_end = choose(hidden.upper_end, __shfl_xor_sync(kWholeWarp, hidden.upper_end, distance));
  }
  return hidden;
}

//| A lane reads every 32nd key of the tile, and keeps the least and the largest of each bound. Five rounds of
//| shuffles then give those of the tile. The last warps of the grid may have no tile.
/// Scans the bounds of tiles of kKeys keys. Grid: (tiles of keys of all heads, four per block).
template <int kKeys>
__global__ void __launch_bounds__(kScanThreads)
    scan_columns(ColumnBounds columns, int seqlen_q, int seqlen_k, int heads_and_tiles, Scanned scanned) {
  const int tile = (blockIdx.x * kScanThreads + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (tile >= heads_and_tiles) return;
  const int tiles_of_head = ceil_div(seqlen_k, kKeys);
  const int head = tile / tiles_of_head, first_key = tile % tiles_of_head * kKeys;
  constexpr int kMax = 2147483647;
  const auto least = [](int a, int b) { return min(a, b); };
  const auto largest = [](int a, int b) { return max(a, b); };
  //| The kernel also writes the four numbers of each key next to each other, so that a partial tile reads
  //| them in one load.
  HiddenOfTile all{{kMax, kMax, kMax, kMax}, {0, 0, 0, 0}};
  for (int key = first_key + lane; key < first_key + kKeys; key += 32) {
    Hidden hidden{0, kMax, 0, kMax};
    if (key < seqlen_k) hidden = columns.at(int64_t(head) * seqlen_k + key, seqlen_q);
    scanned.hidden[int64_t(tile) * kKeys + key - first_key] = hidden;
    const auto take = [&](Hidden& into, const auto& choose) {
      into = {choose(into.lower_begin, hidden.lower_begin), choose(into.lower_end, hidden.lower_end),
              choose(into.upper_begin, hidden.upper_begin), choose(into.upper_end, hidden.upper_end)};
    };
    take(all.least, least);
    take(all.largest, largest);
  }
  all = {reduce_warp(all.least, least), reduce_warp(all.largest, largest)};
  if (lane == 0) scanned.tiles[tile] = all;
}

//| ## The policy
//|
//| Intervals complement step 3's ranges: FlashMask's causal masks have bounds below the diagonal only, and
//| the diagonal itself is step 3's arithmetic. So a tile has two classes, one from each, and the more
//| restrictive one counts: `TileClass` ascends from skip to full.
/// The tiles of keys for a tile of queries.
template <int kKeys>
struct ColumnTiles : RangeTiles<kKeys> {
  const HiddenOfTile* hidden;  // [tiles of keys]
  int first_query, last_query;

  __device__ TileClass classify(int first_key) const {
    const TileClass by_ranges = RangeTiles<kKeys>::classify(first_key);
    if (by_ranges == TileClass::skip) return by_ranges;
    const TileClass by_columns = hidden[first_key / kKeys].classify(first_query, last_query);
    return by_columns < by_ranges ? by_columns : by_ranges;
  }
};

//| Query heads that share a key head share its intervals, or all heads share one set. `group` is how many
//| heads share.
/// Step 4.
struct ByColumns : InBatch, InRanges {
  static constexpr Extras kExtras = {.prepared = true, .documents = true, .hidden_by_key = true};
  Scanned scanned;
  device::Divisor group;  ///< query heads that share a row of bounds
  int heads_of_columns;   ///< rows of bounds per batch entry
  int key_tiles;          ///< tiles of keys per head
  int tile_keys;          ///< keys per tile
  Unchanged score;

  __device__ int64_t first_tile(const Work& work) const {
    return (int64_t(work.head.batch) * heads_of_columns + work.head.head / group) * key_tiles;
  }
  template <int kKeys>
  __device__ ColumnTiles<kKeys> tiles(const Work& work, int last_query) const {
    return {{ranges, work.sequence, work.first_query, last_query, work.document},
            scanned.tiles + first_tile(work),
            work.first_query,
            last_query};
  }
  //| A partial tile needs both: its rows' ranges, and its keys' intervals (`hide_by_key` in
  //| `partial_tile.cuh`).
  /// Returns the intervals of the keys from `first_key` on.
  __device__ const Hidden* hidden(const Work& work, int first_key) const {
    return scanned.hidden + first_tile(work) * tile_keys + first_key;
  }
};

}  // namespace flashbook::masks
