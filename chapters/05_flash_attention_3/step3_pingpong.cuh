//| # Step 3: pingpong
//|
//| The consumers take turns at issuing products, so that one's softmax runs during the other's products
//| (`common/hopper/pingpong.h`). Everything else is as in step 2.
//|
//| **Budget.** As in step 2.
//|
//| ![What the consumers of a block do at the same time in steps 2 to
//| 5](../../docs/figures/pingpong_timeline.svg)
#pragma once
#include "chapters/05_flash_attention_3/specialised.cuh"
#include "common/hopper/epilogue.h"
#include "common/hopper/mask.h"
#include "common/hopper/pingpong.h"
#include "common/hopper/softmax.h"

namespace flashbook::fa3 {

//| ## The kernel
/// Computes attention for 64 queries per consumer, of one head. Grid: (tiles of queries * heads).
template <typename T, typename Traits>
__global__ void __launch_bounds__(Traits::kThreads, 1)
    pingpong(const __grid_constant__ TileMap q_map,  // [batch, heads, panels, seqlen_q, 64]
             const __grid_constant__ TileMap k_map,  // [batch, kv heads, panels, seqlen_k, 64]
             const __grid_constant__ TileMap v_map,  // [batch, kv heads, panels, seqlen_k, 64]
             T* o,                                   // [batch, heads, seqlen_q, head_dim], strided
             float* lse,                             // [batch, heads, seqlen_q]
             Problem problem) {
  constexpr int kHeadDim = Traits::kHeadDim, kKeys = Traits::kKeys, kConsumers = Traits::kConsumers;
  constexpr int kRows = kConsumers * kRowsPerWarpgroup;
  using Shared = SpecialisedShared<T, Traits>;
  static_assert(sizeof(Shared) <= kMaxSharedBytes, "more shared memory than a block of sm_90 may have");
  auto& shared = *dynamic_shared<Shared>();
  auto& pipeline = shared.pipeline;

  const int tiles_of_head = problem.query_tiles(kRows);
  const Head head = problem.head_of(blockIdx.x / tiles_of_head);
  const int block_query = blockIdx.x % tiles_of_head * kRows;
  const int key_tiles = problem.key_tiles(block_query + kRows - 1, kKeys);

  if (threadIdx.x == 0) {
    initialise(pipeline, 1, kConsumers * kWarpsPerWarpgroup, "full", "empty");
    mbarrier_init(&shared.q_full, 1);
    name_mbarrier(&shared.q_full, "q_full");
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are ready

  // The same in all threads of a warp; the shuffle tells the compiler so.
  const int warpgroup = __shfl_sync(kWholeWarp, threadIdx.x / kWarpgroup, 0);

  if (warpgroup == 0) {  // the producer
    setmaxnreg_dec<kProducerRegisters<kConsumers>>();
    if (threadIdx.x == 0) {
      mbarrier_arrive_expect_tx(&shared.q_full, kConsumers * Tile<T, kRowsPerWarpgroup, kHeadDim>::kBytes);
      for (int i = 0; i < kConsumers; ++i)
        load(shared.q[i], q_map, &shared.q_full, block_query + i * kRowsPerWarpgroup, head);
      PipelineState<Traits::kStages> state;
      stream<Traits, false>(pipeline, state, k_map, v_map, key_tiles, problem.kv_head(head));
    }
    return;
  }

  setmaxnreg_inc<kConsumerRegisters<kConsumers>>();
  const int consumer = warpgroup - 1, thread = threadIdx.x % kWarpgroup;
  const int first_query = block_query + consumer * kRowsPerWarpgroup;
  const int query = first_query + thread / 32 * 16 + thread % 32 / 4;  // the first of this thread's two rows

  const uint64_t q = k_major(shared.q[consumer]);
  const uint64_t keys = k_major(pipeline.tile[0]), values = mn_major(pipeline.tile[0]);
  constexpr uint32_t kTileBytes = sizeof(pipeline.tile[0]);
  float output[kHeadDim / 2], scores[kKeys / 2], correction[2];
  Fragments<kKeys> p;
#pragma unroll
  for (int i = 0; i < kHeadDim / 2; ++i) output[i] = 0.0f;
  auto rows = SoftmaxRows<false>::none();
  PipelineState<Traits::kStages> state;

  open_turns<Traits>(consumer);

  mbarrier_wait(&shared.q_full, 0);
  wait_full(pipeline, state);
  wgmma_fence();
  issue_scores<T, kHeadDim>(scores, q, wgmma_advance(keys, state.stage * kTileBytes));
  wgmma_wait<0>();
  wgmma_pin(scores);
  release(pipeline, state);
  state.advance();
  if (const int first_key = (key_tiles - 1) * kKeys; needs_mask(problem, first_query, first_key, kKeys))
    mask(scores, problem, query, first_key);
  softmax(scores, rows, correction, problem.scale_log2);
  round_to_fragments<T>(p, scores);

#pragma unroll 1
  for (int tile = key_tiles - 2; tile >= 0; --tile) {
    const PipelineState<Traits::kStages> v_state = state, k_state = state.next();
    state = k_state.next();
    const uint64_t k = wgmma_advance(keys, k_state.stage * kTileBytes);
    const uint64_t v = wgmma_advance(values, v_state.stage * kTileBytes);
    //| The consumer waits for V, and then for its turn: the other way around, this wait would hold up other
    //| consumers, too. The wait for K, requested right after V, is inside the turn, since the product with V
    //| goes first. The turn is passed on as soon as both products are queued.
    wait_full(pipeline, v_state);
    Traits::record(Moment::landed, tile);
    take_turn<Traits>(consumer);
    Traits::record(Moment::turn, tile);
    wgmma_pin(output);
    wgmma_pin(p);
    wgmma_fence();
    issue_accumulate<T>(output, p, v);
    wait_full(pipeline, k_state);
    wgmma_fence();
    issue_scores<T, kHeadDim>(scores, q, k);
    Traits::record(Moment::issued, tile);
    pass_turn<Traits>(consumer);

    wgmma_wait<0>();  // both products are done
    wgmma_pin(output);
    wgmma_pin(p);
    release(pipeline, v_state);
    wgmma_pin(scores);
    Traits::record(Moment::scores, tile);
    release(pipeline, k_state);
    if (needs_mask(problem, first_query, tile * kKeys, kKeys)) mask(scores, problem, query, tile * kKeys);
    softmax(scores, rows, correction, problem.scale_log2);
    Traits::record(Moment::softmax, tile);
    round_to_fragments<T>(p, scores);
    rescale_rows(output, correction);
    Traits::record(Moment::end, tile);
  }

  //| The last product takes a turn, too: all consumers must take the same number of turns, or one would wait
  //| for a turn that is never passed.
  wait_full(pipeline, state);
  take_turn<Traits>(consumer);
  wgmma_pin(output);
  wgmma_pin(p);
  wgmma_fence();
  issue_accumulate<T>(output, p, wgmma_advance(values, state.stage * kTileBytes));
  pass_turn<Traits>(consumer);
  wgmma_wait<0>();
  wgmma_pin(output);
  wgmma_pin(p);

  finish_rows(output, rows, problem, lse, problem.number(head), query);
  store_from_registers<T>(
      output, query, problem.seqlen_q, [&](int row) { return o + problem.o_offset(head, row); }, 1.0f,
      problem.head_dim);
}

}  // namespace flashbook::fa3
