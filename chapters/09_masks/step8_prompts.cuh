//| # Step 8: prompts against pages
//|
//| A server reads a prompt in chunks of some hundred tokens, between two tokens of everybody else. The queries of a chunk are packed, as
//| in step 2. But the keys before them lie in pages, wherever a page was free (chapter 8). Chapter 8's kernel takes packed queries against
//| pages. It was made for few rows: its tiles have at most 64, and `mma.sync` multiplies them. Here the kernel of steps 1 to 5 gets a
//| producer that looks up pages.
//|
//| ![Three packed sequences: the last tile of the first reaches into the second, and the map ends where the sequence does](../../docs/figures/packed_end.svg)
#pragma once
#include "chapters/09_masks/step2_varlen.cuh"

namespace flashbook::masks {

//| ## A tile of several pages
//|
//| A tile of 128 keys is put together of pieces: a page each, or, if pages have more rows, one piece of a page. A box of the tensor map is
//| one piece and one panel. So a tile of 128 keys and 128 columns out of pages of 16 takes 8 * 2 = 16 copies. Each has its lane of
//| the producer's warp, which looks up its page. Pages have at least 8 rows: the swizzle's pattern repeats after 8, so a piece of 8 rows lies in
//| shared memory as it does within a whole tile.
//|
//| **The map is step 2's.** It has 2^30 rows, of which a piece of n rows has the last n, and e says where they end. Now e counts from the first page on,
//| and a page is so many units further than the one before. Keys beyond the end of a sequence are rows beyond the map's
//| end, and come as zeros, whatever lies in the rest of the page.

/// Where keys and values lie.
struct Pages {
  const int* table;            // a page for each place, or null: sequence i has page i
  int bits;                    ///< a page has 2^bits rows
  int piece_rows;              ///< of a copy: of a page, but at most of a tile
  int k_distance, v_distance;  ///< from a page to the next, in the units of K's and V's map

  /// The page that has a sequence's key. `first` is the sequence's first place in the table.
  __device__ int page_of(int first, int key) const {
    return table == nullptr ? first : table[first + (key >> bits)];
  }
};

/// Keys of one head that the lanes of a warp bring, a piece each.
struct Pieces {
  const TileMap& map;
  MapStrides strides;
  int distance;  ///< from a page to the next
};

//| The tile's bytes are announced once, by lane 0, before any lane asks for a piece. Where a piece has fewer rows than its
//| box, TMA fills up with zeros, which count as bytes too.
/// Brings this lane's piece of a tile: its rows from `key` on, which `page` has. All lanes of a warp.
template <typename Traits, typename Shared>
__device__ __forceinline__ void fill_by_pieces(Shared& shared, PipelineState<Traits::kStages>& state,
                                               const Pieces& of, const Pages& pages, int kv_head, int keys,
                                               int first_page, int key) {
  constexpr int kPanels = Traits::kHeadDim / kPanel;
  const int lane = threadIdx.x % 32, panel = lane % kPanels, row = lane / kPanels * pages.piece_rows;
  auto& tile = shared.pipeline.tile[state.stage];
  uint64_t* const full = &shared.pipeline.full[state.stage];
  const int page = row < Traits::kKeys && key < keys ? pages.page_of(first_page, key) : 0;
  wait_empty(shared.pipeline, state);
  if (lane == 0) mbarrier_arrive_expect_tx(full, sizeof(tile));
  __syncwarp();  // the barrier knows of the bytes before any can land
  if (row < Traits::kKeys) {
    const int rows = min(max(keys - key, 0), pages.piece_rows);
    const int end = (key & ((1 << pages.bits) - 1)) + rows;  // in the page
    const bool by_panels = of.map.by_panels;
    tma_load(tile.element[panel][row], of.map, full,
             {by_panels ? panel * kPanel : 0, kRowsOfVarlenMap - rows, by_panels ? 0 : panel,
              page * of.distance + kv_head * of.strides.head + end * of.strides.row, kWrap});
  }
  state.advance();
}

//| ## The producer's warp
//|
//| The thread that streams keys and values becomes a warp. Its order is `produce_keys`'s: keys run one tile ahead of values, whose pages
//| each lane looks up once more, in the L1. To look up a page takes a microsecond at worst, under which the consumers work on what the pipeline has.
/// A copy of what comes next. All lanes of a warp.
template <typename T, int kStages>
__device__ __forceinline__ T next_of_warp(Pipeline<T, kStages>& broadcast, PipelineState<kStages>& state) {
  wait_full(broadcast, state);
  const T next = broadcast.tile[state.stage];
  __syncwarp();  // all lanes have read it
  release(broadcast, state);
  state.advance();
  return next;
}

/// The warp that streams keys and values from pages.
template <typename Traits, typename Shared>
__device__ void produce_pieces(Shared& shared, const TileMap& k_map, const TileMap& v_map,
                               const Problem& problem, const Pages& pages) {
  constexpr int kPanels = Traits::kHeadDim / kPanel;
  const Pieces k{k_map, problem.k_map_strides, pages.k_distance};
  const Pieces v{v_map, problem.v_map_strides, pages.v_distance};
  const int lane = threadIdx.x % 32, row = lane / kPanels * pages.piece_rows;
  PipelineState<kWorkStages> next;
  PipelineState<kBallotStages> ballots;
  PipelineState<Traits::kStages> state;
  for (;;) {
    const Work work = next_of_warp(shared.work, next);
    if (work.first_query < 0) return;
    int left = work.partial + work.full;
    if (left < kTilesBefore && lane == 0) mbarrier_arrive(&shared.near_end);
    const int kv_head = work.head.head / problem.group, keys = work.sequence.keys;
    int before = -1;  // this lane's first key of the tile whose values are still to be sent
    while (left > 0) {
      const TileBallot ballot = next_of_warp(shared.ballots, ballots);
      for (uint32_t tiles = ballot.tiles; tiles != 0; --left) {
        const int bit = 31 - __clz(int(tiles));
        tiles ^= 1u << bit;
        const int first_key = ballot.span.tile(ballot.first + bit) * Traits::kKeys, key = first_key + row;
        wait_empty(shared.pipeline, state);
        if (lane == 0) {
          if (left == kTilesBefore) mbarrier_arrive(&shared.near_end);
          shared.first_key[state.stage] = first_key;
        }
        fill_by_pieces<Traits>(shared, state, k, pages, kv_head, keys, work.sequence.first_key, key);
        if (before >= 0)
          fill_by_pieces<Traits>(shared, state, v, pages, kv_head, keys, work.sequence.first_key, before);
        before = key;
      }
    }
    if (before >= 0)
      fill_by_pieces<Traits>(shared, state, v, pages, kv_head, keys, work.sequence.first_key, before);
  }
}

//| ## The policy
//|
//| A sequence's keys are as many as the cache has of it, its queries are the last ones, and the plan is step 2's. `Sequence::first_key` is
//| a place in the table of pages.
//|
//| **Heads share tiles.** In the same call most sequences may decode, with one query each. A tile of 128 rows for each head would be nearly
//| empty, and every head would read the keys again. So up to four heads of a group are rows of one tile. A tile that is nearly empty is computed whole all the
//| same. But one of 128 keys takes some 1.7 us, in which memory brings 132 multiprocessors no more keys than that.
/// Sequences of a cache with some queries each.
struct CachedSequences {
  const int* first_query;  // [count + 1], or null: all have `queries`, and are batch entries
  const int* lengths;      // [count], keys of each, or null: all have `keys`
  int count;
  int queries, keys;
  int pages;      ///< places in the table that a sequence has
  int head_bits;  ///< 2^head_bits heads share a tile

  __device__ Sequence at(int i) const {
    const int first = first_query == nullptr ? 0 : first_query[i];
    const int own = first_query == nullptr ? queries : first_query[i + 1] - first;
    return {first, own, i * pages, lengths == nullptr ? keys : lengths[i]};
  }
  __device__ int queries_of(int tile_rows) const { return tile_rows >> head_bits; }
  __device__ int entry(int i) const { return first_query == nullptr ? i : 0; }
  __device__ MapRows q_rows(int i, const Sequence& s) const {
    return first_query == nullptr ? MapRows{0, 0, i} : varlen_rows(s.first_query, s.queries);
  }
  __device__ static MapRows k_rows(int, const Sequence&) { return {}; }  ///< pages say it
};

/// Step 8.
struct Prompts : InPlan<CachedSequences>, InRanges {
  Unchanged score;
  Pages pages;
  int head_bits;

  template <typename Traits, typename Shared>
  __device__ void produce(Shared& shared, const TileMap& k_map, const TileMap& v_map,
                          const Problem& problem) const {
    produce_pieces<Traits>(shared, k_map, v_map, problem, pages);
  }
};

}  // namespace flashbook::masks
