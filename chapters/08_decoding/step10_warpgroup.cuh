//| # Step 10: rows for a warpgroup
//|
//| **The limit of step 9.** With several query tokens a pack has more rows: four tokens of eight heads make
//| 32, sixteen make 128. The ring gives its warps 16 rows each, so with 64 rows four warps load and multiply
//| every key, and with 128 rows two blocks read every key from the L2. Neither keeps up with device memory
//| any more.
//|
//| **What this step does.** From 17 rows on, most of a warpgroup's 64 rows are in use. So this is chapter 5's
//| kernel again: `wgmma` reads a tile of keys once per 64 rows, and the scores of one tile are computed while
//| the previous tile's values are multiplied. Everything else is unchanged: the plan of step 6, the boxes of
//| step 9, merging.
//|
//| **Budget** (d = 128): 32 KB of Q, two places for 64 rows or one for 128; six stages of 32 KB. Two stages
//| are always being read. Registers of a consumer thread: scores 64, O 64, P 32.
//|
//| ![A warpgroup's 64 rows belong to four warps; a row is in four neighbouring
//| lanes](../../docs/figures/wgmma_fragments.svg)
#pragma once
#include "chapters/08_decoding/step10_merge.cuh"
#include "chapters/08_decoding/step9_boxes.cuh"
#include "common/hopper/block.h"
#include "common/hopper/epilogue.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/setmaxnreg.h"

namespace flashbook::decoding {

//| Two warpgroups share each tile of keys. At d = 256 there are not enough registers.

template <int kHeadDim_, int kConsumers_>
struct WarpgroupTraits {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kConsumers = kConsumers_;  ///< warpgroups: 1, or up to d = 128 also 2
  static constexpr int kRows = kConsumers * kRowsPerWarpgroup;
  static constexpr int kKeys = kHeadDim == 256 ? 64 : 128;  ///< keys per tile
  static constexpr int kPanels = kHeadDim / kPanel;
  //| The queries are allocated first, and the stages get the rest of 227 KB.
  static constexpr int kQueryPlaces = kConsumers == 1 ? 2 : 1;
  static constexpr int kStages = kHeadDim == 64 ? 12 : kHeadDim == 128 ? 6 : 5;
  static constexpr int kWarps = kConsumers * kWarpsPerWarpgroup;
  /// Consumers and producers: two producer warps, or with two consumers a warpgroup that gives up registers:
  /// of three times 168 it keeps 56, and the consumers get 224 each.
  static constexpr int kThreads = kWarps * 32 + (kConsumers == 1 ? 64 : kWarpgroup);
};

/// Shared memory of a block.
template <typename T, typename Traits>
struct WarpgroupShared {
  Tile<T, kRowsPerWarpgroup, Traits::kHeadDim> q[Traits::kQueryPlaces][Traits::kConsumers];
  Pipeline<Tile<T, Traits::kKeys, Traits::kHeadDim>, Traits::kStages> ring;
  Segment segment[Traits::kQueryPlaces][Traits::kWarps];  ///< each warp's segment, and its next
  PlaceInPlan at[Traits::kWarps];
  bool is_last[Traits::kConsumers];  ///< whether the warpgroup is the last to arrive with its part
};

//| ## Two producers
//|
//| `wgmma` needs a swizzle, whose rows are 128 bytes, so a box is a panel of 64 columns. Each lane loads the
//| same box of every tile. A page has at least eight keys here, because the swizzle's pattern repeats after
//| eight rows. As in step 9, one warp loads keys, and another loads values.
//|
//| The order of the stages follows the consumers: a tile's values come after the next tile's keys. A box past
//| the last key has nothing to load, but without it the stage would keep old bytes, which may be NaN. So it
//| is requested from beyond the map's end, and arrives as zeros.

/// Threads that synchronise once the block's first queries are requested: consumers and two producer warps.
template <typename Traits>
constexpr int kRequestThreads = (Traits::kWarps + 2) * 32;

/// Waits until the consumers have requested the block's first queries.
template <typename Traits>
__device__ __forceinline__ void wait_for_request() {
  named_barrier_sync<kQueriesRequested, kRequestThreads<Traits>>();
}

/// Fills the stages of keys, or those of values. One warp.
template <bool kValues, typename T, typename Traits, typename PlanType>
__device__ __forceinline__ void produce_panels(WarpgroupShared<T, Traits>& shared, const CUtensorMap& map,
                                               const Cache& cache, const Problem& problem,
                                               const PlanType& plan,
                                               Segments<Traits::kKeys, PlanType>& segments) {
  constexpr int kBeyondTheEnd = 1 << 30;
  const int lane = threadIdx.x % 32, panel = lane % Traits::kPanels;
  const int in_tile = lane / Traits::kPanels * cache.copy_rows;  // the first key of this lane's box
  PipelineState<Traits::kStages> state;
  Segment segment;
  int before_queries = kValues ? 0 : 1;  // tiles that are requested before the queries
  while (segments.next(segment)) {
    const Pack of = problem.pack_of(segment.pack);
    const int start = plan.first_key_of(problem, of.batch, segment.length);
    PagesAhead pages(cache, of.batch, segment, start, Traits::kKeys);
    for (int tile = segment.begin; tile < segment.end; ++tile) {
      const int page = pages.of(tile, lane / Traits::kPanels % cache.copies);
      //| Keys of tiles 0 and 1, values of 0, keys of 2, values of 1: between two of its stages a warp skips
      //| one of the other warp. At a segment's end the values of the last two tiles are consecutive.
      if (kValues) {
        if (tile == segment.begin) state.advance();   // skips this tile's keys
        if (tile + 1 < segment.end) state.advance();  // and those of the next tile
      } else if (tile >= segment.begin + 2) {
        state.advance();  // skips the values of the tile before the last
      }
      //| The first keys are requested at once, the rest only after the block's first queries. All blocks fill
      //| their stages at the same time, with 25 MB, and queries requested after that would wait 6 µs for it.
      if (before_queries-- == 0) wait_for_request<Traits>();
      wait_empty(shared.ring, state);
      auto& stage = shared.ring.tile[state.stage];
      uint64_t* full = &shared.ring.full[state.stage];
      if (lane == 0) mbarrier_arrive_expect_tx(full, sizeof(stage));
      __syncwarp();  // announce the bytes before any can land
      //| A tile has at most 32 boxes, with pages of eight keys at d = 128 and 256. So a lane issues one, or
      //| none.
      if (in_tile < Traits::kKeys) {
        const int key = start + tile * Traits::kKeys + in_tile;
        int in_page = cache.table == nullptr ? key : key & ((1 << cache.page_bits) - 1);
        if constexpr (PlanType::kWindow) in_page += plan.rows_before(of.batch);
        tma_load(stage.element[panel][in_tile], map, full,
                 {panel * kPanel, key < segment.length ? in_page : kBeyondTheEnd, of.kv_head, page},
                 cache.keep);
      }
      __syncwarp();
      state.advance();
    }
    if (!kValues)
      for (int i = 0; i < min(segment.end - segment.begin, 2); ++i)
        state.advance();  // skips the last tiles' values
  }
  if (before_queries >= 0) wait_for_request<Traits>();  // a block with one tile, or none
}

//| ## Queries
//|
//| A warpgroup copies its rows of the pack to the places that the swizzle assigns, by `cp.async`. It does so
//| for the next segment while it works on this one, into a second place, since a load takes some microseconds
//| while every block reads, and all blocks would wait at the same time. Two warpgroups have no space for
//| that, since a sixth stage gains more; their next queries are loaded while the results are stored. Rows and
//| columns past those of the tensor become zeros.
template <typename T, typename Traits, typename PlanType>
__device__ __forceinline__ void load_rows(Tile<T, kRowsPerWarpgroup, Traits::kHeadDim>& tile, const T* q,
                                          const Problem& problem, const PlanType& plan, int pack,
                                          int first_row) {
  constexpr int kPieces = Traits::kHeadDim / 8;  // pieces of 16 bytes per row
  const Pack of = plan.rows_at(problem, pack);
  const int rows = plan.rows_of(problem, pack), columns = plan.template columns<Traits::kHeadDim>();
#pragma unroll 1  // a row's address takes some registers
  for (int i = threadIdx.x % kWarpgroup; i < kRowsPerWarpgroup * kPieces; i += kWarpgroup) {
    const int row = i / kPieces, column = i % kPieces * 8;
    uint4* to = piece_of(tile, row, column);
    if (first_row + row < rows && (!PlanType::kPadded || column < columns))
      cp_async_cg(to, q + problem.offset(problem.q_strides, of, first_row + row) + column);
    else
      *to = make_uint4(0, 0, 0, 0);
  }
  cp_async_commit();
}

//| ## A segment's tiles
//|
//| This is chapter 5's loop: the scores of a tile are issued before the values of the previous one, and the
//| softmax runs under that product. A tile is masked only if some row does not see all of it.

/// Whether a key of the tile is past the last one or hidden from a row, or the plan's rules change scores.
template <typename Traits, typename PlanType>
__device__ __forceinline__ void change_and_mask(float (&scores)[Traits::kKeys / 2], const Problem& problem,
                                                const PlanType& plan, const Segment& segment, int row,
                                                int first_unseen, int tile_key) {
  if constexpr (PlanType::kFunctions || PlanType::kWindow)
#pragma unroll
    for (int chunk = 0; chunk < Traits::kKeys / kRowsPerMma; ++chunk)
      plan.change(scores + 8 * chunk, problem, segment, row, tile_key + chunk * kRowsPerMma);
  if (tile_key + Traits::kKeys <= first_unseen) return;
  const int last[2] = {problem.last_key(segment.length, row), problem.last_key(segment.length, row + 8)};
  mask(scores, last, tile_key);
}

//| Past the last key, and before a window, a cache may hold anything, even NaN, and 0 * NaN is NaN. So the
//| consumers zero those values, all of them together.
/// Zeroes rows `first` ... `end` - 1 of a tile of values. All consumers.
template <typename Traits, typename Tile>
__device__ __forceinline__ void clear_values(Tile& tile, int first, int end) {
  constexpr int kPieces = Traits::kHeadDim / 8;
#pragma unroll 1  // it happens once, and registers are scarce
  for (int i = first * kPieces + threadIdx.x; i < end * kPieces; i += Traits::kWarps * 32)
    *piece_of(tile, i / kPieces, i % kPieces * 8) = make_uint4(0, 0, 0, 0);
  fence_proxy_async();                                     // the zeros are visible to wgmma
  named_barrier_sync<kBothGroups, Traits::kWarps * 32>();  // and so are the zeros of all other threads
}

//| The first tile has no earlier values to multiply, and the last values have no later keys. Both are outside
//| the loop.
/// Computes attention for a warpgroup's rows, `q`, over a segment. `row`: the thread's first row of the pack;
/// `first_row`: the first row of the block.
template <typename T, typename Traits, typename PlanType>
__device__ __forceinline__ void attend_rows(WarpgroupShared<T, Traits>& shared,
                                            PipelineState<Traits::kStages>& state, const Problem& problem,
                                            const PlanType& plan, const Segment& segment, uint64_t q, int row,
                                            int first_row, float (&output)[Traits::kHeadDim / 2],
                                            LazyRows& rows) {
  constexpr int kHeadDim = Traits::kHeadDim, kKeys = Traits::kKeys;
  constexpr uint32_t kTileBytes = sizeof(shared.ring.tile[0]);
  const uint64_t keys = k_major(shared.ring.tile[0]);
  const uint64_t values = mn_major(shared.ring.tile[0]);
  const int first_key = plan.first_key_of(problem, segment.pack / problem.packs, segment.length);
  const auto clear_hidden = [&](int stage) {
    const int hidden = plan.hidden_keys(problem, segment.pack / problem.packs, segment.length);
    if (hidden > 0) clear_values<Traits>(shared.ring.tile[stage], 0, hidden);
  };
  const int first_unseen = problem.last_key(segment.length, first_row) + 1;  // first key hidden from some row
  float scores[kKeys / 2], correction[2];
  Fragments<kKeys> p;
#pragma unroll
  for (float& x : output) x = 0;
  rows = LazyRows::none();

  //| Compute the first tile's scores, softmax and P.
  wait_full(shared.ring, state);  // the first tile's keys have arrived
  wgmma_fence();
  issue_scores<T, kHeadDim>(scores, q, wgmma_advance(keys, state.stage * kTileBytes));
  wgmma_wait<0>();
  wgmma_pin(scores);
  release(shared.ring, state);
  state.advance();
  change_and_mask<Traits>(scores, problem, plan, segment, row, first_unseen,
                          first_key + segment.begin * kKeys);
  hopper::softmax(scores, rows, correction, problem.scale_log2);
  round_to_fragments<T>(p, scores);

  //| In the loop two products run at once. `wgmma_wait<1>` waits for the older one, the scores; the other
  //| adds to O during the softmax.
#pragma unroll 1
  for (int tile = segment.begin + 1; tile < segment.end; ++tile) {
    const PipelineState<Traits::kStages> k_state = state, v_state = state.next();
    state = v_state.next();
    wait_full(shared.ring, k_state);  // this tile's keys have arrived
    wgmma_pin(output);
    wgmma_pin(p);
    wgmma_fence();
    issue_scores<T, kHeadDim>(scores, q, wgmma_advance(keys, k_state.stage * kTileBytes));
    wait_full(shared.ring, v_state);  // the previous tile's values have arrived
    if (PlanType::kWindow && tile == 1) clear_hidden(v_state.stage);
    wgmma_fence();
    issue_accumulate<T>(output, p, wgmma_advance(values, v_state.stage * kTileBytes));
    wgmma_wait<1>();  // the scores are done; the product with V still runs
    wgmma_pin(scores);
    release(shared.ring, k_state);
    change_and_mask<Traits>(scores, problem, plan, segment, row, first_unseen, first_key + tile * kKeys);
    const bool rescale = softmax_lazily(scores, rows, correction, problem.scale_log2);
    wgmma_wait<0>();  // P V is done: P may be overwritten, O rescaled
    wgmma_pin(output);
    wgmma_pin(p);
    release(shared.ring, v_state);
    round_to_fragments<T>(p, scores);
    if (rescale) rescale_rows(output, correction);
  }

  //| No scores are left to compute next to the last values, and the cache past them may hold anything.
  wait_full(shared.ring, state);  // the last tile's values have arrived
  const int keys_left = segment.length - (first_key + (segment.end - 1) * kKeys);
  if (PlanType::kWindow && segment.end == 1) clear_hidden(state.stage);
  if (keys_left < kKeys) clear_values<Traits>(shared.ring.tile[state.stage], keys_left, kKeys);
  wgmma_pin(output);
  wgmma_pin(p);
  wgmma_fence();
  issue_accumulate<T>(output, p, wgmma_advance(values, state.stage * kTileBytes));
  wgmma_wait<0>();
  wgmma_pin(output);
  wgmma_pin(p);
  release(shared.ring, state);
  state.advance();
}

//| ## Results and parts
//|
//| A thread stores its parts of two rows: finished rows in O, or in float32 if other blocks have keys of the
//| same item.

/// Stores a warpgroup's rows, or the block's part of them.
template <typename T, typename Traits, typename PlanType>
__device__ __forceinline__ void store_rows(float (&output)[Traits::kHeadDim / 2], float (&row_lse)[2],
                                           const Problem& problem, const PlanType& plan,
                                           const Segment& segment, int row, int first_row,
                                           const Workspace& workspace, T* o, float* lse) {
  constexpr int kHeadDim = Traits::kHeadDim;
  const Pack of = plan.rows_at(problem, segment.pack);
  const int rows = plan.rows_of(problem, segment.pack), lane = threadIdx.x % 4;
  if (segment.parts > 1) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (row + 8 * r >= rows) continue;
      const int64_t place = place_of<Traits>(segment.first_block, segment.part, row + 8 * r - first_row);
      auto* to = reinterpret_cast<float2*>(workspace.partials.o + place * kHeadDim) + lane;
#pragma unroll
      for (int i = 0; i < kHeadDim / 8; ++i)
        to[4 * i] = make_float2(output[4 * i + 2 * r], output[4 * i + 2 * r + 1]);
      if (lane == 0) workspace.partials.lse[place] = row_lse[r];
    }
    return;
  }
  //| A finished row merges its head's sink logit, if there is one, and goes to O in 16 bits.
  if constexpr (PlanType::kSinks) {
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
      factor[r] = plan.take_sink(row_lse[r], of.first_head + (row + 8 * r) % problem.pack);
    rescale_rows(output, factor);
  }
  store_from_registers<T>(
      output, row, rows, [&](int at) { return o + problem.offset(problem.o_strides, of, at); }, 1.0f,
      plan.template columns<kHeadDim>());
#pragma unroll
  for (int r = 0; r < 2; ++r)
    if (lane == 0 && row + 8 * r < rows) lse[problem.number(of, row + 8 * r)] = row_lse[r];
}

//| ## The kernel
//|
//| | barrier | who arrives | arrivals of a phase | who waits | first wait |
//| | --- | --- | --- | --- | --- |
//| | `full` | a producer's lane 0 with the bytes of a tile; then the bytes | 1 | every consumer thread | parity 0 |
//| | `empty` | lane 0 of each consumer warp, when its products have read the tile | 4 per warpgroup | a producer warp | parity 1 |

/// Computes attention for all tiles of 64 or 128 rows. Grid: as many blocks as the plan has; shared memory:
/// WarpgroupShared. `PlanType` is Plan, or Rules.
template <typename T, typename Traits, typename PlanType>
__global__ void __launch_bounds__(Traits::kThreads, 1)
    warpgroups(const __grid_constant__ KeyMaps maps,
               const T* q,  // [batch, heads, seqlen_q, kHeadDim], strided
               T* o,        // [batch, heads, seqlen_q, kHeadDim], strided
               float* lse,  // [batch, heads, seqlen_q]
               Cache cache, Workspace workspace, Problem problem, PlanType plan) {
  using Shared = WarpgroupShared<T, Traits>;
  static_assert(sizeof(Shared) <= kMaxSharedBytes, "more shared memory than a block may have");
  Shared& shared = *dynamic_shared<Shared>();
  const int warp = warp_of_block();
  if (threadIdx.x == Traits::kWarps * 32) {
    tma_prefetch(maps.k);
    tma_prefetch(maps.v);
  }
  if (threadIdx.x == 0) {
    initialise(shared.ring, 1, Traits::kWarps, "full", "empty");
    fence_mbarrier_init();  // TMA sees the barriers,
  }
  Segments<Traits::kKeys, PlanType> segments(plan, problem, gridDim.x);
  segments.begin(blockIdx.x);  // meanwhile, all other warps
  __syncthreads();             // all threads see the barriers
  let_dependents_launch();     // merge_many may set itself up meanwhile
  //| A block of three warpgroups begins with 168 registers per thread. The third warpgroup, in which two
  //| warps produce, keeps 56, so each of the others can have 224: 2 * 224 + 56 = 3 * 168.
  if (warp >= Traits::kWarps) {
    if constexpr (Traits::kConsumers == 2) setmaxnreg_dec<56>();
    if (warp == Traits::kWarps) produce_panels<false>(shared, maps.k, cache, problem, plan, segments);
    if (warp == Traits::kWarps + 1) produce_panels<true>(shared, maps.v, cache, problem, plan, segments);
    return;
  }
  if constexpr (Traits::kConsumers == 2) setmaxnreg_inc<224>();

  //| The others are consumers, with 16 rows per warp.
  const int group = warp / kWarpsPerWarpgroup;
  const int row_in_block = warp * kRowsPerMma + int(threadIdx.x) % 32 / 4;  // the other row is 8 further
  PipelineState<Traits::kStages> state;
  //| A warp's segment is in shared memory, because in registers it would crowd out sums.
  /// Goes on to the next segment, if there is one, and starts loading its queries.
  const auto begin_next = [&](int place) {
    segments.at = shared.at[warp];
    Segment next;
    if (!segments.next(next)) return false;
    __syncwarp();  // all lanes have read their place
    if (threadIdx.x % 32 == 0) {
      shared.segment[place][warp] = next;
      shared.at[warp] = segments.at;
    }
    load_rows<T, Traits>(shared.q[place][group], q, problem, plan, next.pack,
                         next.row_tile * Traits::kRows + group * kRowsPerWarpgroup);
    return true;
  };
  //| `cp.async` writes like an ordinary store, so `wgmma` needs a fence before it reads Q: each thread waits
  //| for its own pieces, makes them visible, and then the four warps meet.
  constexpr int kLastPlace = Traits::kQueryPlaces - 1;
  if (threadIdx.x % 32 == 0) shared.at[warp] = segments.at;
  __syncwarp();
  bool is_there = begin_next(0);
  named_barrier_arrive<kQueriesRequested, kRequestThreads<Traits>>();
  for (int place = 0; is_there; place = kLastPlace - place) {
    cp_async_wait<0>();   // this thread's pieces of Q have landed,
    fence_proxy_async();  // and visible to wgmma,
    sync_warpgroup();     // as are those of all four warps, and all are done with the other place
    //| An item without keys has no tiles, but its rows are written all the same: zeros, and -inf for the
    //| log-sum-exp.
    const Segment segment = shared.segment[place][warp];
    if (kLastPlace == 1) is_there = begin_next(1 - place);
    const int first_row = segment.row_tile * Traits::kRows, row = first_row + row_in_block;
    float output[Traits::kHeadDim / 2] = {}, row_lse[2];
    LazyRows rows = LazyRows::none();
    if (segment.begin < segment.end)
      attend_rows(shared, state, problem, plan, segment, k_major(shared.q[place][group]), row, first_row,
                  output, rows);
    if (kLastPlace == 0) {
      sync_warpgroup();  // all four warps are done with Q
      is_there = begin_next(0);
    }
    finish_rows(output, rows, row_lse, problem.scale_log2);
    store_rows<T, Traits>(output, row_lse, problem, plan, segment, row, first_row, workspace, o, lse);
    if (1 < segment.parts && segment.parts <= plan.parts_of_last)
      finish_parts_of_rows<T, Traits>(problem, plan, segment, workspace, shared.is_last[group], first_row, o,
                                      lse);
  }
}

}  // namespace flashbook::decoding
