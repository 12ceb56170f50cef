//| # Step 2: a producer and consumers
//|
//| In step 1 every thread does everything, so everything waits. Here the work is divided. Warpgroup 0 is the
//| *producer*: one thread of it keeps the pipeline filled. Two more warpgroups, three at d = 64, are
//| *consumers*: each owns 64 queries, and all read the same keys. Tiles are in flight while others are
//| multiplied. The producer needs hardly any registers, so `setmaxnreg` gives its share to the consumers,
//| which hold S, P and O.
//|
//| Steps 3 and 4 keep this code and change a few lines each.
//|
//| **Budget.** d = 128: Q 32 KB, four stages of 32 KB, 160 KB; registers: O 64, S 64, P 32, of 232. d = 64:
//| three consumers of 160 registers, 88 KB. d = 256: O takes 128 registers and a tile of 80 keys 40 KB: 224
//| of the 227 KB that a block may have.
//|
//| ![One thread of warpgroup 0 requests tiles from TMA; two consumers read them; the barriers between
//| them](../../docs/figures/hopper_block.svg)
#pragma once
#include "chapters/05_flash_attention_3/specialised.cuh"
#include "common/hopper/epilogue.h"
#include "common/hopper/mask.h"
#include "common/hopper/softmax.h"

namespace flashbook::fa3 {

//| The maps of Q, K and V are parameters marked `__grid_constant__`: TMA reads a map by its address, and only
//| such a parameter has one that all threads share. `__launch_bounds__(threads, 1)` promises one block per
//| multiprocessor, so that ptxas may give each thread as many registers as there are.
/// Computes attention for 64 queries per consumer, of one head. Grid: (tiles of queries * heads).
template <typename T, typename Traits>
__global__ void __launch_bounds__(Traits::kThreads, 1)
    specialised(const __grid_constant__ TileMap q_map,  // [batch, heads, panels, seqlen_q, 64]
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

  //| The last query of the block determines how many tiles of keys it needs: under a causal mask it sees the
  //| most.
  const int tiles_of_head = problem.query_tiles(kRows);
  const Head head = problem.head_of(blockIdx.x / tiles_of_head);
  const int block_query = blockIdx.x % tiles_of_head * kRows;
  const int key_tiles = problem.key_tiles(block_query + kRows - 1, kKeys);

  if (threadIdx.x == 0) {
    //| One thread writes the barriers into shared memory. The fence makes them visible to TMA, which is not a
    //| thread, and `__syncthreads` to the threads.
    initialise(pipeline, 1, kConsumers * kWarpsPerWarpgroup, "full", "empty");
    mbarrier_init(&shared.q_full, 1);
    name_mbarrier(&shared.q_full, "q_full");
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are ready

  // The same in all threads of a warp; the shuffle tells the compiler so.
  const int warpgroup = __shfl_sync(kWholeWarp, threadIdx.x / kWarpgroup, 0);

  //| ## The producer
  //|
  //| First it releases registers. All four warps must do that, since `setmaxnreg` works on a whole warpgroup.
  //| Then one thread announces the bytes of the queries, requests them, and streams the keys and values. It
  //| never touches an element: TMA writes to shared memory and counts the bytes down at the barrier. The
  //| other 127 threads exit.
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

  //| ## A consumer
  //|
  //| A consumer waits here until the producer has released its registers, then takes them.
  setmaxnreg_inc<kConsumerRegisters<kConsumers>>();
  const int consumer = warpgroup - 1, thread = threadIdx.x % kWarpgroup;
  const int first_query = block_query + consumer * kRowsPerWarpgroup;
  const int query = first_query + thread / 32 * 16 + thread % 32 / 4;  // the first of this thread's two rows

  //| Descriptors are built once, for the consumer's own queries and for stage 0. Another stage is a constant
  //| distance away, which `wgmma_advance` adds to the address in the descriptor. Output and scores are plain
  //| arrays. All loops over them are unrolled, so that every element is a register.
  const uint64_t q = k_major(shared.q[consumer]);
  const uint64_t keys = k_major(pipeline.tile[0]), values = mn_major(pipeline.tile[0]);
  constexpr uint32_t kTileBytes = sizeof(pipeline.tile[0]);
  float output[kHeadDim / 2], scores[kKeys / 2], correction[2];
  Fragments<kKeys> p;
#pragma unroll
  for (int i = 0; i < kHeadDim / 2; ++i) output[i] = 0.0f;
  auto rows = SoftmaxRows<false>::none();
  PipelineState<Traits::kStages> state;

  //| ### The first tile
  //|
  //| Nothing can overlap yet: there are no probabilities to multiply with V. So the first scores are computed
  //| alone, and the loop below always has two products: the scores of one tile, and P V of the previous tile.
  //| The first tile holds the end of the sequence or the diagonal, so it is usually masked. `wgmma_fence`
  //| allows WGMMA to use registers that ordinary instructions wrote. `wgmma_pin` costs nothing: it tells the
  //| compiler that these registers change here, so that it moves no use of them across the wait.
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

  //| ### The loop
  //|
  //| A round begins with P of tile + 1 in registers, and ends with P of `tile`. It uses two stages of the
  //| pipeline: the first holds V of tile + 1, the second K of `tile`.
#pragma unroll 1
  for (int tile = key_tiles - 2; tile >= 0; --tile) {
    const PipelineState<Traits::kStages> v_state = state, k_state = state.next();
    state = k_state.next();
    const uint64_t k = wgmma_advance(keys, k_state.stage * kTileBytes);
    const uint64_t v = wgmma_advance(values, v_state.stage * kTileBytes);
    //| The consumer waits for the tile that its first product reads.
    wait_full(pipeline, v_state);
    Traits::record(Moment::landed, tile);
    //| Two products are issued, one group each. They queue at the tensor cores and run in the order of issue.
    //| The order does not matter for the result; V goes first because it comes first through the pipeline.
    Traits::record(Moment::turn, tile);
    wgmma_pin(output);
    wgmma_pin(p);
    wgmma_fence();
    issue_accumulate<T>(output, p, v);
    wait_full(pipeline, k_state);
    wgmma_fence();
    issue_scores<T, kHeadDim>(scores, q, k);
    Traits::record(Moment::issued, tile);

    //| ### Waiting
    //|
    //| Both groups must be done. A stage is released only after the wait for the product that reads it:
    //| if it were released earlier, TMA would overwrite keys that the tensor cores still read.
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

  //| ### The end
  //|
  //| P V of tile 0 remains. Then the rows are divided by their sums and stored straight from the registers
  //| (`common/hopper/epilogue.h`).
  wait_full(pipeline, state);
  wgmma_pin(output);
  wgmma_pin(p);
  wgmma_fence();
  issue_accumulate<T>(output, p, wgmma_advance(values, state.stage * kTileBytes));
  wgmma_wait<0>();
  wgmma_pin(output);
  wgmma_pin(p);

  finish_rows(output, rows, problem, lse, problem.number(head), query);
  store_from_registers<T>(
      output, query, problem.seqlen_q, [&](int row) { return o + problem.o_offset(head, row); }, 1.0f,
      problem.head_dim);
}

}  // namespace flashbook::fa3
