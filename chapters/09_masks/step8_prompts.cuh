//| # Step 8: prompts against pages
//|
//| A server reads a prompt in chunks of some hundred tokens, between two tokens of all other users. The
//| queries of a chunk are packed, as in step 2. But the earlier keys are in pages, wherever a page was free
//| (chapter 8). Chapter 8's kernel takes packed queries against pages, but was made for few rows: its tiles
//| have at most 64, and it multiplies them with `mma.sync`. Here the kernel of steps 1 to 5 gets a producer
//| that looks up pages.
//|
//| ![A tile of 128 keys is put together of four pages, a piece each in two panels; below, four heads share
//| the 64 rows of a consumer](../../docs/figures/prompt_pieces.svg)
#pragma once
#include "chapters/09_masks/step2_varlen.cuh"

namespace flashbook::masks {

//| ## A tile of several pages
//|
//| A tile of 128 keys is assembled from pieces: one page each, or part of a page if pages have more rows. A
//| box of the tensor map is one piece in one panel. So a tile of 128 keys and 128 columns from pages of 16
//| takes 8 * 2 = 16 copies. Each has its own lane of the producer's warp, which looks up the page. Pages have
//| at least 8 rows: the swizzle's pattern repeats after 8, so a piece of 8 rows has the same layout in shared
//| memory as within a whole tile.
//|
//| **The map** of step 2 has 2^30 rows; a piece of n rows is the last n of them, and e is where they end.
//| Here e counts from the first page on, and pages are a fixed number of its units apart. Keys past the end
//| of a sequence are rows past the map's end, and are loaded as zeros, whatever the rest of the page holds.

/// The location of keys and values.
struct Pages {
  const int* table;            // the page at each place; null: sequence i has page i
  int bits;                    ///< a page has 2^bits rows
  int piece_rows;              ///< rows per copy: those of a page, but at most those of a tile
  int k_distance, v_distance;  ///< distance between pages, in the units of K's and V's map

  /// Returns the page that has a sequence's key. `first` is the sequence's first place in the table.
  __device__ int page_of(int first, int key) const {
    return table == nullptr ? first : table[first + (key >> bits)];
  }
};

/// K or V, as the lanes of a warp load it.
struct Pieces {
  MapStrides strides;
  int distance;  ///< distance between pages

  /// Returns the map's fourth index for `rows` rows of a page, starting at the row of `key`.
  __device__ int place(const Pages& pages, int page, int head, int key, int rows) const {
    const int end = (key & ((1 << pages.bits) - 1)) + rows;  // in the page
    return page * distance + head * strides.head + end * strides.row;
  }
};

//| Lane 0 announces the tile's bytes once, before any lane requests a piece. If a piece has fewer rows than
//| its box, TMA adds zeros, which count as bytes too.
/// Loads this lane's piece of a tile, of which `rows` rows are keys. All lanes of a warp.
template <typename Traits, typename Shared>
__device__ __forceinline__ void fill_by_pieces(Shared& shared, PipelineState<Traits::kStages>& state,
                                               const TileMap& map, const Pages& pages, int rows, int place) {
  constexpr int kPanels = Traits::kHeadDim / kPanel;
  const int lane = threadIdx.x % 32, panel = lane % kPanels, row = lane / kPanels * pages.piece_rows;
  auto& tile = shared.pipeline.tile[state.stage];
  uint64_t* const full = &shared.pipeline.full[state.stage];
  wait_empty(shared.pipeline, state);
  if (lane == 0) mbarrier_arrive_expect_tx(full, sizeof(tile));
  __syncwarp();  // announce the bytes before any can land
  if (row < Traits::kKeys)
    tma_load(
        tile.element[panel][row], map, full,
        {map.by_panels ? panel * kPanel : 0, kVarlenMapRows - rows, map.by_panels ? 0 : panel, place, kWrap});
  state.advance();
}

//| ## Two loading warps
//|
//| Issuing a copy takes a lane some hundred clocks, and the lanes of a warp issue one after another. With
//| pages of 16 a tile of keys and its values are 32 copies, more than one warp has time for. So keys have one
//| warp, and values another, which also loads the queries. Each goes through all tiles in the order of
//| `produce_keys`: K of the first tile, then K of the next and V of the one before. Each skips the stages
//| that the other fills.

//| The broadcasts treat a warp as one reader: all its lanes read, and then lane 0 releases the place.
/// Returns a copy of the next work. Called by all lanes of a warp.
template <typename T, int kStages>
__device__ __forceinline__ T next_of_warp(Pipeline<T, kStages>& broadcast, PipelineState<kStages>& state) {
  wait_full(broadcast, state);
  const T next = broadcast.tile[state.stage];
  __syncwarp();  // all lanes have their copy
  release(broadcast, state);
  state.advance();
  return next;
}

//| A lane loads the same piece of every tile. If its row is past the end of the tile, the lane loads nothing.
/// The data of both loading warps, and the position of each.
template <typename Traits, typename Shared>
struct Asker {
  Shared& shared;
  const TileMap& map;
  const Pieces of;
  const Pages& pages;
  const int row;  ///< first row of this lane's piece in a tile
  PipelineState<kBallotStages> ballots;
  PipelineState<Traits::kStages> state;

  __device__ Asker(Shared& shared, const TileMap& map, const MapStrides& strides, int distance,
                   const Pages& pages)
      : shared(shared),
        map(map),
        of{strides, distance},
        pages(pages),
        row(int(threadIdx.x % 32) / (Traits::kHeadDim / kPanel) * pages.piece_rows) {}

  //| **Looked up a tile ahead.** A look-up in the table takes as long as loading a key, half a microsecond
  //| and more. So the page of the next tile is requested before this tile's copies are; only a ballot's first
  //| tile waits for its page.
  /// Loads all tiles of a work item, one after another. `skip(i)` skips the other warp's stages before tile
  /// i, `begin(first_key, left)` does what else a tile needs. All lanes.
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
    //| As in `produce_keys`, the highest bit of a ballot is the next tile.
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

//| **Keys.** Tile 0's keys use the first stage of a row, tile 1's the second, and from then on a stage of
//| values lies between two of keys. This warp also requests the next row, and writes each tile's first key
//| next to its stage.
/// Runs the warp that streams keys.
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
          if (tile >= 2) keys.state.advance();  // skips the values of tile - 2
        },
        [&](int first_key, int left) {
          wait_empty(shared.pipeline, keys.state);
          if (left == kTilesBefore && leads) mbarrier_arrive(&shared.near_end);
          if (leads) shared.first_key[keys.state.stage] = first_key;
        });
    for (int i = 0; i < min(count, 2); ++i) keys.state.advance();  // skips the last two tiles' values
  }
}

//| **Queries and values.** Values are not needed before the first scores. So this warp can wait for the
//| queries' place while the other warp already requests the keys of the new row's first ballot.
/// Runs the warp that loads queries and streams values.
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
          if (tile == 0) values.state.advance();         // skips its keys
          if (tile + 1 < count) values.state.advance();  // and those of the next tile
        },
        [](int, int) {});
  }
}

//| ## The policy
//|
//| A sequence has as many keys as the cache holds for it, its queries are the last ones, and step 2 makes
//| the plan. `Sequence::first_key` is a place in the table of pages.
//|
//| **Heads share tiles.** In the same call most sequences may be decoding, with one query each. A tile of 128
//| rows per head would be nearly empty, and every head would read the keys again. So up to four heads of a
//| group are rows of one tile. A nearly empty tile still costs a whole one. But a tile of 128 keys takes some
//| 1.5 us to compute, and memory takes 2.0 us to deliver one to each of 132 multiprocessors.
/// Sequences of a cache with some queries each.
struct CachedSequences {
  const int* first_query;  // [count + 1], or null: all have `queries`, and are batch entries
  const int* lengths;      // [count], keys of each, or null: all have `keys`
  int count;
  int queries, keys;
  int pages;      ///< places in the table per sequence
  int head_bits;  ///< 2^head_bits heads share a tile

  __device__ Sequence at(int i) const {
    const int first = first_query == nullptr ? 0 : first_query[i];
    const int own = first_query == nullptr ? queries : first_query[i + 1] - first;
    return {first, own, i * pages, lengths == nullptr ? keys : lengths[i]};
  }
  //| Queries may be packed, or be batch entries: the tensor map is that of step 2, or of step 3.
  __device__ int queries_of(int tile_rows) const { return tile_rows >> head_bits; }
  __device__ int entry(int i) const { return first_query == nullptr ? i : 0; }
  __device__ MapRows q_rows(int i, const Sequence& s) const {
    return first_query == nullptr ? MapRows{0, 0, i} : varlen_rows(s.first_query, s.queries);
  }
  __device__ static MapRows k_rows(int, const Sequence&) { return {}; }  ///< pages have their own rows
};

//| The mask is that of step 3, without documents: within its sequence a query sees what a window shows,
//| aligned to the last key.
/// Step 8.
struct Prompts : InPlan<CachedSequences>, InRanges {
  static constexpr Extras kExtras = {
      .prepared = true, .documents = true, .shared_tiles = true, .producer = true};
  Unchanged score;
  Pages pages;
  int head_bits;

  template <typename Traits, typename Shared>
  __device__ void produce(Shared& shared, int warp, const TileMap& q_map, const TileMap& k_map,
                          const TileMap& v_map, const Problem& problem) const {
    if (warp == 0) produce_keys_by_pieces<Traits>(shared, k_map, problem, pages);
    if (warp == 1)
      produce_queries_and_values<Traits>(shared, q_map, v_map, problem, pages,
                                         kRowsPerWarpgroup >> head_bits);
  }
};

}  // namespace flashbook::masks
