//| # Step 8: prompts against pages
//|
//| A server reads a prompt in chunks of some hundred tokens, between two tokens of everybody else. The
//| queries of a chunk are packed, as in step 2. But the keys before them lie in pages, wherever a page was
//| free (chapter 8). Chapter 8's kernel takes packed queries against pages. It was made for few rows: its
//| tiles have at most 64, and `mma.sync` multiplies them. Here the kernel of steps 1 to 5 gets a producer
//| that looks up pages.
//|
//| ![A tile of 128 keys is put together of four pages, a piece each in two panels; below, four heads share
//| the 64 rows of a consumer](../../docs/figures/prompt_pieces.svg)
#pragma once
#include "chapters/09_masks/step2_varlen.cuh"

namespace flashbook::masks {

//| ## A tile of several pages
//|
//| A tile of 128 keys is put together of pieces: a page each, or, if pages have more rows, one piece of a
//| page. A box of the tensor map is one piece and one panel. So a tile of 128 keys and 128 columns out of
//| pages of 16 takes 8 * 2 = 16 copies. Each has its lane of the producer's warp, which looks up its page.
//| Pages have at least 8 rows: the swizzle's pattern repeats after 8, so a piece of 8 rows lies in shared
//| memory as it does within a whole tile.
//|
//| **The map is step 2's.** It has 2^30 rows, of which a piece of n rows has the last n, and e says where
//| they end. Now e counts from the first page on, and a page is so many units further than the one before.
//| Keys beyond the end of a sequence are rows beyond the map's end, and come as zeros, whatever lies in the
//| rest of the page.

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

/// K or V, as the lanes of a warp bring it.
struct Pieces {
  MapStrides strides;
  int distance;  ///< from a page to the next

  /// The map's fourth index for `rows` rows of a page from the one on that has `key`.
  __device__ int place(const Pages& pages, int page, int head, int key, int rows) const {
    const int end = (key & ((1 << pages.bits) - 1)) + rows;  // in the page
    return page * distance + head * strides.head + end * strides.row;
  }
};

//| The tile's bytes are announced once, by lane 0, before any lane asks for a piece. Where a piece has fewer
//| rows than its box, TMA fills up with zeros, which count as bytes too.
/// Brings this lane's piece of a tile, of which `rows` rows are keys. All lanes of a warp.
template <typename Traits, typename Shared>
__device__ __forceinline__ void fill_by_pieces(Shared& shared, PipelineState<Traits::kStages>& state,
                                               const TileMap& map, const Pages& pages, int rows, int place) {
  constexpr int kPanels = Traits::kHeadDim / kPanel;
  const int lane = threadIdx.x % 32, panel = lane % kPanels, row = lane / kPanels * pages.piece_rows;
  auto& tile = shared.pipeline.tile[state.stage];
  uint64_t* const full = &shared.pipeline.full[state.stage];
  wait_empty(shared.pipeline, state);
  if (lane == 0) mbarrier_arrive_expect_tx(full, sizeof(tile));
  __syncwarp();  // the barrier knows of the bytes before any can land
  if (row < Traits::kKeys)
    tma_load(tile.element[panel][row], map, full,
             {map.by_panels ? panel * kPanel : 0, kRowsOfVarlenMap - rows, map.by_panels ? 0 : panel, place,
              kWrap});
  state.advance();
}

//| ## Two warps that ask
//|
//| To ask for a copy takes a lane some hundred clocks, and lanes of a warp ask one after another. With pages
//| of 16 a tile of keys and its values are 32 copies, more than one warp has time for. So keys have a warp,
//| and values have another: the one that brings queries. Each goes through all tiles, in the order of
//| `produce_keys`: K of the first tile, then K of the next and V of the one before. What the other warp
//| fills, it skips.

//| The broadcasts count a warp as one reader: all its lanes read, and then lane 0 gives the place back.
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

//| A lane has the same piece of every tile. Where its row is none of the tile's, the lane brings nothing.
/// What both warps know, and where each is.
template <typename Traits, typename Shared>
struct Asker {
  Shared& shared;
  const TileMap& map;
  const Pieces of;
  const Pages& pages;
  const int row;  ///< of this lane's piece in a tile
  PipelineState<kBallotStages> ballots;
  PipelineState<Traits::kStages> state;

  __device__ Asker(Shared& shared, const TileMap& map, const MapStrides& strides, int distance,
                   const Pages& pages)
      : shared(shared),
        map(map),
        of{strides, distance},
        pages(pages),
        row(int(threadIdx.x % 32) / (Traits::kHeadDim / kPanel) * pages.piece_rows) {}

  //| **Looked up a tile ahead.** The table's answer takes as long as a key's, half a microsecond and more. So
  //| the page of the next tile is asked for before the copies of this one are; only a ballot's first tile
  //| waits for its page.
  /// Has all tiles of a work brought, one after another. `skip(i)` goes past what the other warp fills before
  /// tile i, `begin(first_key, left)` does what goes with a tile. All lanes.
  template <typename Skip, typename Begin>
  __device__ __forceinline__ void bring(const Work& work, int head, const Skip& skip, const Begin& begin) {
    const auto rows_of = [&](int first_key) {
      return min(max(work.sequence.keys - first_key - row, 0), pages.piece_rows);
    };
    const auto look_up = [&](int first_key) {
      return row < Traits::kKeys && rows_of(first_key) > 0
                 ? pages.page_of(work.sequence.first_key, first_key + row)
                 : 0;
    };
    //| As `produce_keys` does: the highest bit of a ballot is the next tile.
    const int count = work.partial + work.full;
    for (int done = 0; done < count;) {
      const TileBallot ballot = next_of_warp(shared.ballots, ballots);
      const auto first_key_of = [&](uint32_t tiles) {
        return ballot.span.tile(ballot.first + 31 - __clz(int(tiles))) * Traits::kKeys;
      };
      int page = look_up(first_key_of(ballot.tiles));
      for (uint32_t tiles = ballot.tiles; tiles != 0; ++done) {
        const int first_key = first_key_of(tiles), rows = rows_of(first_key);
        const int place = of.place(pages, page, head, first_key + row, rows);
        tiles ^= 1u << (31 - __clz(int(tiles)));
        if (tiles != 0) page = look_up(first_key_of(tiles));
        skip(done);
        begin(first_key, count - done);
        fill_by_pieces<Traits>(shared, state, map, pages, rows, place);
      }
    }
  }
};

//| **Keys.** Tile 0's keys have the first stage of a row, tile 1's the second, and from then on a stage of
//| values lies between two of keys. This warp also says when the next row is wanted, and writes each tile's
//| first key beside its stage.
/// The warp that streams keys.
template <typename Traits, typename Shared>
__device__ void produce_keys_by_pieces(Shared& shared, const TileMap& map, const Problem& problem,
                                       const Pages& pages) {
  Asker<Traits, Shared> keys(shared, map, problem.k_map_strides, pages.k_distance, pages);
  const bool leads = threadIdx.x % 32 == 0;
  for (PipelineState<kWorkStages> next;;) {
    const Work work = next_of_warp(shared.work, next);
    if (work.first_query < 0) return;
    const int count = work.partial + work.full;
    if (count < kTilesBefore && leads) mbarrier_arrive(&shared.near_end);
    keys.bring(
        work, work.head.head / problem.group,
        [&](int tile) {
          if (tile >= 2) keys.state.advance();  // the values of tile - 2
        },
        [&](int first_key, int left) {
          wait_empty(shared.pipeline, keys.state);
          if (left == kTilesBefore && leads) mbarrier_arrive(&shared.near_end);
          if (leads) shared.first_key[keys.state.stage] = first_key;
        });
    for (int i = 0; i < min(count, 2); ++i) keys.state.advance();  // the last two tiles' values
  }
}

//| **Queries and values.** Values are not wanted before the first scores. So this warp can wait for the
//| queries' place while the other already sends the keys of the new row's first ballot.
/// The warp that brings queries and streams values.
template <typename Traits, typename Shared>
__device__ void produce_queries_and_values(Shared& shared, const TileMap& q_map, const TileMap& v_map,
                                           const Problem& problem, const Pages& pages, int queries) {
  Asker<Traits, Shared> values(shared, v_map, problem.v_map_strides, pages.v_distance, pages);
  PipelineState<kWorkStages> next;
  for (PipelineState<Traits::kQueryPlaces> place;; place.advance()) {
    const Work work = next_of_warp(shared.work, next);
    if (work.first_query < 0) return;
    if (threadIdx.x % 32 == 0)
      load_queries<Traits>(shared, q_map, place, work.q_rows.row + work.first_query,
                           work.q_rows.of(work.head.head, problem.q_map_strides), queries);
    __syncwarp();  // lane 0 has waited for the place
    const int count = work.partial + work.full;
    values.bring(
        work, work.head.head / problem.group,
        [&](int tile) {
          if (tile == 0) values.state.advance();         // its keys
          if (tile + 1 < count) values.state.advance();  // and the next tile's
        },
        [](int, int) {});
  }
}

//| ## The policy
//|
//| A sequence's keys are as many as the cache has of it, its queries are the last ones, and the plan is step
//| 2's. `Sequence::first_key` is a place in the table of pages.
//|
//| **Heads share tiles.** In the same call most sequences may decode, with one query each. A tile of 128 rows
//| for each head would be nearly empty, and every head would read the keys again. So up to four heads of a
//| group are rows of one tile. A tile that is nearly empty is computed whole all the same. But a tile of 128
//| keys takes some 1.5 us, and memory takes 2.0 us to bring 132 multiprocessors theirs.
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
  //| Queries that are packed, and queries that are batch entries: the tensor map is step 2's, or step 3's.
  __device__ int queries_of(int tile_rows) const { return tile_rows >> head_bits; }
  __device__ int entry(int i) const { return first_query == nullptr ? i : 0; }
  __device__ MapRows q_rows(int i, const Sequence& s) const {
    return first_query == nullptr ? MapRows{0, 0, i} : varlen_rows(s.first_query, s.queries);
  }
  __device__ static MapRows k_rows(int, const Sequence&) { return {}; }  ///< pages say it
};

//| The mask is step 3's, without documents: within its sequence a query sees what a window shows, aligned to
//| the last key.
/// Step 8.
struct Prompts : InPlan<CachedSequences>, InRanges {
  Unchanged score;
  Pages pages;
  int head_bits;

  template <typename Traits, typename Shared>
  __device__ void produce(Shared& shared, int warp, const TileMap& q_map, const TileMap& k_map,
                          const TileMap& v_map, const Problem& problem) const {
    if (warp == 0) produce_keys_by_pieces<Traits>(shared, k_map, problem, pages);
    if (warp == 1)
      produce_queries_and_values<Traits>(shared, q_map, v_map, problem, pages, kRowsOfWarpgroup >> head_bits);
  }
};

}  // namespace flashbook::masks
