//| # Steps 2, 3 and 4: a producer and consumers
//|
//| In step 1 every thread does everything, so everything waits. Here the work is divided.
//|
//| **Step 2: roles.** Warpgroup 0 is the *producer*: one thread of it keeps the pipeline filled. Two more
//| warpgroups, three at d = 64, are *consumers*: each owns 64 queries, and all read the same keys. Tiles
//| travel while others are multiplied. The producer needs hardly any registers, so `setmaxnreg` gives its
//| share to the consumers, which hold S, P and O.
//|
//| **Step 3: pingpong.** The consumers take turns at issuing products, so that one's softmax runs during the
//| other's products (`common/hopper/pingpong.h`).
//|
//| **Step 4: overlap within a warpgroup.** The scores of the next tile are issued *before* the product with V
//| of this one. While the softmax of the new scores runs, the tensor cores still multiply with V, for the
//| same warpgroup. The price is registers: P lives through the softmax of the next scores.
//|
//| The three differ in two switches: whether consumers take turns, and in which order they issue.
//|
//| **Budget.** d = 128: Q 32 KB, four stages of 32 KB, 160 KB; registers 64 of O, 64 of S, 32 of P, of 232.
//| d = 64: three consumers of 160 registers, 88 KB. d = 256: O takes 128 registers and a tile of 80 keys 40
//| KB: 224 of the 227 KB that a block may have.
//|
//| ![One thread of warpgroup 0 asks TMA for tiles; two consumers read them; the barriers between
//| them](../../docs/figures/hopper_block.svg)
#pragma once
#include "common/hopper/block.h"
#include "common/hopper/epilogue.h"
#include "common/hopper/mask.h"
#include "common/hopper/moments.h"
#include "common/hopper/pingpong.h"
#include "common/hopper/pipeline.h"
#include "common/hopper/softmax.h"
#include "common/hopper/tiles.h"
#include "common/ptx/setmaxnreg.h"

namespace flashbook::fa3 {

using namespace hopper;

/// The choices of a version.
struct SpecialisedSizes {
  int head_dim;
  int consumers = 2;      ///< warpgroups that multiply, 64 queries each: 2 or 3
  int keys = 128;         ///< of a tile
  int stages = 4;         ///< of the pipeline
  bool pingpong = false;  ///< step 3
  bool overlap = false;   ///< step 4
};

/// One version of the kernel, as a type, so that its choices are made at compile time.
template <SpecialisedSizes kSizes>
struct SpecialisedTraits : Unrecorded {
  static constexpr int kHeadDim = kSizes.head_dim, kConsumers = kSizes.consumers, kKeys = kSizes.keys;
  static constexpr int kStages = kSizes.stages;
  static constexpr bool kPingpong = kSizes.pingpong, kOverlap = kSizes.overlap;
  static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
};

//| ## The block
//|
//| Shared memory holds the queries of all consumers, the pipeline, and one more barrier, `q_full`: queries
//| come once, so it has one phase and they are never given back.
/// Shared memory of a block.
template <typename T, typename Traits>
struct SpecialisedShared {
  Tile<T, kRowsOfWarpgroup, Traits::kHeadDim> q[Traits::kConsumers];
  Pipeline<Tile<T, Traits::kKeys, Traits::kHeadDim>, Traits::kStages> pipeline;
  uint64_t q_full;  ///< the queries of all consumers have landed; one phase
};

//| ## In which order tiles come
//|
//| Tiles of keys go from the last to the first: the ragged end and the causal diagonal come first, and the
//| loop over the rest needs no mask. Without overlap, consumers want K and V of one tile, then of the next.
//| With it (step 4) they want the next K before this V:
//|
//| | | | | | | | |
//| | --- | --- | --- | --- | --- | --- | --- |
//| | in pairs | K3 | V3 | K2 | V2 | K1 | V1 | K0 V0 |
//| | keys first | K3 | K2 | V3 | K1 | V2 | K0 | V1 V0 |

/// Streams the K and V of `tiles` tiles of keys through the pipeline, the last first. One thread of the
/// producer.
template <typename Traits, bool kKeysFirst, typename Pipeline>
__device__ __forceinline__ void stream(Pipeline& pipeline, PipelineState<Traits::kStages>& state,
                                       const TileMap& k_map, const TileMap& v_map, int tiles,
                                       const Head& kv_head) {
  constexpr int kKeys = Traits::kKeys;
  if constexpr (kKeysFirst) fill(pipeline, state, k_map, (tiles - 1) * kKeys, kv_head);
#pragma unroll 1  // the producer has few registers
  for (int tile = tiles - 1; tile >= 0; --tile) {
    const int k_tile = kKeysFirst ? tile - 1 : tile;
    if (k_tile >= 0) {
      fill(pipeline, state, k_map, k_tile * kKeys, kv_head);
      Traits::record(Moment::keys_sent, k_tile);
    }
    fill(pipeline, state, v_map, tile * kKeys, kv_head);
    Traits::record(Moment::values_sent, tile);
  }
}

//| The maps of Q, K and V are parameters marked `__grid_constant__`: TMA reads a map by its address, and only
//| such a parameter has one that all threads share. `__launch_bounds__(threads, 1)` promises one block per
//| multiprocessor, so that ptxas may give each thread as many registers as there are.
/// Attention for 64 queries per consumer, of one head. Grid: (tiles of queries * heads).
template <typename T, typename Traits>
__global__ void __launch_bounds__(Traits::kThreads, 1)
    specialised(const __grid_constant__ TileMap q_map,  // [batch, heads, panels, seqlen_q, 64]
                const __grid_constant__ TileMap k_map,  // [batch, kv heads, panels, seqlen_k, 64]
                const __grid_constant__ TileMap v_map,  // [batch, kv heads, panels, seqlen_k, 64]
                T* o,                                   // [batch, heads, seqlen_q, head_dim], strided
                float* lse,                             // [batch, heads, seqlen_q]
                Problem problem) {
  constexpr int kHeadDim = Traits::kHeadDim, kKeys = Traits::kKeys, kConsumers = Traits::kConsumers;
  constexpr int kRows = kConsumers * kRowsOfWarpgroup;
  using Shared = SpecialisedShared<T, Traits>;
  static_assert(sizeof(Shared) <= kMostSharedBytes, "more shared memory than a block of sm_90 may have");
  auto& shared = *dynamic_shared<Shared>();
  auto& pipeline = shared.pipeline;

  //| The last query of the block decides how many tiles of keys it needs: under a causal mask it sees the
  //| most.
  const int tiles_of_head = problem.query_tiles(kRows);
  const Head head = problem.head_of(blockIdx.x / tiles_of_head);
  const int block_query = blockIdx.x % tiles_of_head * kRows;
  const int key_tiles = problem.key_tiles(block_query + kRows - 1, kKeys);

  if (threadIdx.x == 0) {
    //| One thread writes the barriers into shared memory. The fence shows them to TMA, which is not a thread;
    //| the `__syncthreads` shows them to the threads.
    initialise(pipeline, 1, kConsumers * kWarpsOfWarpgroup, "full", "empty");
    mbarrier_init(&shared.q_full, 1);
    name_mbarrier(&shared.q_full, "q_full");
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are ready

  // The same in all threads of a warp; the shuffle tells the compiler so.
  const int warpgroup = __shfl_sync(kWholeWarp, threadIdx.x / kWarpgroup, 0);

  //| ## The producer
  //|
  //| First it gives registers back. All four warps must do that, since `setmaxnreg` works on a whole
  //| warpgroup. Then one thread announces the bytes of the queries, asks for them, and streams the keys and
  //| values. It never looks at an element: TMA writes into shared memory and counts the bytes down at the
  //| barrier. The other 127 threads exit.
  if (warpgroup == 0) {  // the producer
    setmaxnreg_dec<kProducerRegisters<kConsumers>>();
    if (threadIdx.x == 0) {
      mbarrier_arrive_expect_tx(&shared.q_full, kConsumers * Tile<T, kRowsOfWarpgroup, kHeadDim>::kBytes);
      for (int i = 0; i < kConsumers; ++i)
        load(shared.q[i], q_map, &shared.q_full, block_query + i * kRowsOfWarpgroup, head);
      PipelineState<Traits::kStages> state;
      stream<Traits, Traits::kOverlap>(pipeline, state, k_map, v_map, key_tiles, problem.kv_head(head));
    }
    return;
  }

  //| ## A consumer
  //|
  //| A consumer waits here until the producer has given its registers back, and takes them.
  setmaxnreg_inc<kConsumerRegisters<kConsumers>>();
  const int consumer = warpgroup - 1, thread = threadIdx.x % kWarpgroup;
  const int first_query = block_query + consumer * kRowsOfWarpgroup;
  const int query = first_query + thread / 32 * 16 + thread % 32 / 4;  // the first of this thread's two rows

  //| Descriptors are made once, of its own queries and of stage 0. Another stage is a constant further on,
  //| which `wgmma_advance` adds to the address in the descriptor. Output and scores are plain arrays. All
  //| loops over them are unrolled, so that every element is a register.
  const uint64_t q = k_major(shared.q[consumer]);
  const uint64_t keys = k_major(pipeline.tile[0]), values = mn_major(pipeline.tile[0]);
  constexpr uint32_t kTileBytes = sizeof(pipeline.tile[0]);
  float output[kHeadDim / 2], scores[kKeys / 2], correction[2];
  Fragments<kKeys> p;
#pragma unroll
  for (int i = 0; i < kHeadDim / 2; ++i) output[i] = 0.0f;
  auto rows = SoftmaxRows<false>::none();
  PipelineState<Traits::kStages> state;

  if constexpr (Traits::kPingpong) open_turns<Traits>(consumer);

  //| ### The first tile
  //|
  //| Nothing can overlap yet: there are no probabilities to multiply with V. So the first scores stand alone,
  //| and the loop below always has two products: the scores of one tile, and P V of the tile before. The
  //| first tile holds the end of the sequence or the diagonal, so it is usually masked. `wgmma_fence` allows
  //| WGMMA to use registers that ordinary instructions wrote. `wgmma_pin` costs nothing: it tells the
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
  //| A round begins with P of tile + 1 in registers, and ends with P of `tile`. It goes through two stages of
  //| the pipeline: one has K of `tile`, the other V of tile + 1. In the pairs of steps 2 and 3 V comes first,
  //| with overlap K does.
#pragma unroll 1
  for (int tile = key_tiles - 2; tile >= 0; --tile) {
    // The two tiles of this iteration: K of the scores first, or V.
    const PipelineState<Traits::kStages> one = state, two = state.next();
    const PipelineState<Traits::kStages> k_state = Traits::kOverlap ? one : two,
                                         v_state = Traits::kOverlap ? two : one;
    state = two.next();
    const uint64_t k = wgmma_advance(keys, k_state.stage * kTileBytes);
    const uint64_t v = wgmma_advance(values, v_state.stage * kTileBytes);
    //| The consumer waits for the tile that its first product reads, and then for its turn. The order
    //| matters: if it took the turn first and then waited for its tile, the other consumers would wait, too.
    wait_full(pipeline, one);
    Traits::record(Moment::landed, tile);
    if constexpr (Traits::kPingpong) take_turn<Traits>(consumer);
    //| Two products are issued, one group each. They queue at the tensor cores and run in the order of issue.
    //| With overlap the scores go first, so they are done first, and the softmax can begin while the product
    //| with V still runs. Without it the order does not matter for the result; V goes first because it comes
    //| first through the pipeline. Only the *issue* is inside the turn, which is passed on as soon as both
    //| products are queued.
    Traits::record(Moment::turn, tile);
    wgmma_pin(output);
    wgmma_pin(p);
    wgmma_fence();
    if constexpr (Traits::kOverlap) {
      issue_scores<T, kHeadDim>(scores, q, k);
      wait_full(pipeline, two);
      wgmma_fence();
      issue_accumulate<T>(output, p, v);
    } else {
      issue_accumulate<T>(output, p, v);
      wait_full(pipeline, two);
      wgmma_fence();
      issue_scores<T, kHeadDim>(scores, q, k);
    }
    Traits::record(Moment::issued, tile);
    if constexpr (Traits::kPingpong) pass_turn<Traits>(consumer);

    //| ### Waiting
    //|
    //| Without overlap both groups must be done. With it, `wgmma_wait<1>` lets the newest group run on, which
    //| is the product with V, and guarantees the scores. K's stage is free then, V's is not yet. A stage is
    //| given back only after the wait for the product that reads it: earlier, TMA would overwrite keys that
    //| the tensor cores still read.
    if constexpr (!Traits::kOverlap) {
      wgmma_wait<0>();  // both products are done
      wgmma_pin(output);
      wgmma_pin(p);
      release(pipeline, v_state);
    } else {
      wgmma_wait<1>();  // the scores are done; the product with V still runs
    }
    wgmma_pin(scores);
    Traits::record(Moment::scores, tile);
    release(pipeline, k_state);
    if (needs_mask(problem, first_query, tile * kKeys, kKeys)) mask(scores, problem, query, tile * kKeys);
    softmax(scores, rows, correction, problem.scale_log2);
    //| Between these two records is everything that overlap hides: maximum, exponentials and row sums, which
    //| need the scores and nothing of V's product. The rest does need it: P's registers are the left operand
    //| of that product, and O is its result. So the consumer waits for it before it rounds the new P and
    //| rescales O.
    Traits::record(Moment::softmax, tile);
    if constexpr (Traits::kOverlap) {
      wgmma_wait<0>();  // P V is done: P may be overwritten, O rescaled
      wgmma_pin(output);
      wgmma_pin(p);
      Traits::record(Moment::values, tile);
      release(pipeline, v_state);
    }
    round_to_fragments<T>(p, scores);
    rescale_rows(output, correction);
    Traits::record(Moment::end, tile);
  }

  //| ### The end
  //|
  //| P V of tile 0 is left. It takes a turn as all products do; all consumers must take equally many turns,
  //| or one would wait for a turn that is never passed. Then the rows are divided by their sums and stored
  //| straight from the registers (`common/hopper/epilogue.h`).
  wait_full(pipeline, state);
  if constexpr (Traits::kPingpong) take_turn<Traits>(consumer);
  wgmma_pin(output);
  wgmma_pin(p);
  wgmma_fence();
  issue_accumulate<T>(output, p, wgmma_advance(values, state.stage * kTileBytes));
  if constexpr (Traits::kPingpong) pass_turn<Traits>(consumer);
  wgmma_wait<0>();
  wgmma_pin(output);
  wgmma_pin(p);

  finish_rows(output, rows, problem, lse, problem.number(head), query);
  store_from_registers<T>(
      output, query, problem.seqlen_q, [&](int row) { return o + problem.o_offset(head, row); }, 1.0f,
      problem.head_dim);
}

}  // namespace flashbook::fa3
