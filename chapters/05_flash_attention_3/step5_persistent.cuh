//| # Step 5: the rest of the way
//|
//| Step 5 keeps step 4's loop, and changes its surroundings. Every piece is a switch of its own, so that an
//| ablation can turn it off:
//|
//| | switch | what it does |
//| | --- | --- |
//| | `kSchedule` | persistent blocks take tile after tile, longest first (`common/hopper/tile_scheduler.h`) |
//| | `kSplitLoops` | tiles with a mask and tiles without one in loops of their own: the second has no trace of it |
//| | `kLazy` | maxima are taken, and the output rescaled, only when a score exceeds one by more than 8 log2 units (`common/hopper/softmax.h`) |
//| | `kStoreByTma` | the output leaves through shared memory while the next tile begins (`common/hopper/epilogue.h`) |
//| | `kPingpong` | step 3's turns |
//|
//| **What the compiler must see.** Descriptors and barriers are the same for all lanes of a warp, and the
//| hardware wants them in *uniform* registers. The compiler keeps them there only while it can prove that the
//| lanes go together. A consumer that issues the store itself, behind `if (lane == 0)`, loses that proof: a
//| sixth more instructions in the loop at d = 128. That is why a thread of the producer issues it.
//|
//| ![Three threads of warpgroup 0 and the consumers, what they share in memory, and its
//| barriers](../../docs/figures/hopper_block_persistent.svg)
#pragma once
#include "chapters/05_flash_attention_3/step2_specialised.cuh"
#include "chapters/05_flash_attention_3/step5_producers.cuh"
#include "common/hopper/consumer.h"

namespace flashbook::fa3 {

//| ## The switches
//|
//| Some depend on the head dimension. At d = 256 queries and pipeline fill shared memory, and leave no room
//| for the output.
/// One version of the kernel, as a type. To turn a switch off, derive from a version and override it.
template <int kHeadDim_, int kConsumers_, int kKeys_, int kStages_, bool kCausal_>
struct PersistentTraits : Unrecorded {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kConsumers = kConsumers_;  ///< warpgroups that multiply, 64 queries each: 2 or 3
  static constexpr int kRows = kConsumers * kRowsOfWarpgroup;  ///< queries of a tile
  static constexpr int kKeys = kKeys_;                         ///< of a tile
  static constexpr int kStages = kStages_;                     ///< of the pipeline
  static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
  static constexpr bool kCausal = kCausal_;
  static constexpr Schedule kSchedule = kCausal ? Schedule::dynamic_persistent : Schedule::static_persistent;
  static constexpr bool kSplitLoops = true;
  static constexpr bool kLazy = true;
  static constexpr bool kStoreByTma = kHeadDim != 256;
  static constexpr bool kPingpong = kHeadDim == 64;
};

//| ## The kernel

/// Attention for the tiles of `order` that this block takes. Grid: as many blocks as there are
/// multiprocessors, or fewer.
template <typename T, typename Traits>
__global__ void __launch_bounds__(Traits::kThreads, 1) persistent(
    const __grid_constant__ TileMap q_map,       // [batch, heads, panels, seqlen_q, 64]
    const __grid_constant__ TileMap k_map,       // [batch, kv heads, panels, seqlen_k, 64]
    const __grid_constant__ TileMap v_map,       // [batch, kv heads, panels, seqlen_k, 64]
    const __grid_constant__ TileMap output_map,  // [batch, heads, panels, seqlen_q, 64], for kStoreByTma
    T* o,                                        // [batch, heads, seqlen_q, head_dim], strided
    float* lse,                                  // [batch, heads, seqlen_q]
    Problem problem, TileOrder order,
    int* counter) {  // Schedule::dynamic_persistent: 0 at the start
  constexpr int kConsumers = Traits::kConsumers;
  using Shared = PersistentShared<T, Traits>;
  static_assert(sizeof(Shared) <= kMostSharedBytes, "more shared memory than a block of sm_90 may have");
  auto& shared = *dynamic_shared<Shared>();
  if (threadIdx.x == 0) {
    //| All warps of the consumers read the broadcast, and so do the thread that brings queries and the one
    //| that stores, if there is one.
    initialise(shared.pipeline, 1, kConsumers * kWarpsOfWarpgroup, "full", "empty");
    initialise(shared.broadcast, kConsumers * kWarpsOfWarpgroup + (Traits::kStoreByTma ? 2 : 1));
    initialise(shared.barriers);
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are ready

  const int warp = warp_of_block(), warpgroup = warp / kWarpsOfWarpgroup;

  //| The three threads of the producer are lanes 0 of three different warps. In one warp they would wait for
  //| each other.
  if (warpgroup == 0) {
    setmaxnreg_dec<kProducerRegisters<kConsumers>>();
    if (threadIdx.x == 0) produce_keys<Traits>(shared, k_map, v_map, problem, order, counter);
    if (threadIdx.x == 32) produce_queries<Traits>(shared, q_map);
    if constexpr (Traits::kStoreByTma)
      if (threadIdx.x == 64) consume_outputs<Traits>(shared, output_map);
    return;
  }

  setmaxnreg_inc<kConsumerRegisters<kConsumers>>();
  const int number = warpgroup - 1,
            row = warp % kWarpsOfWarpgroup * kRowsOfWarp;  // of the warp in the warpgroup
  open_turns<Traits>(number);

  //| ## A consumer's life
  //|
  //| It takes the next tile from the broadcast, attends to it, and hands the output over. `parity` changes
  //| with each tile of queries, since each of the four barriers has one phase per tile. A negative tile ends
  //| it.
  PipelineState<kBroadcastStages> next;
  PipelineState<Traits::kStages> state;
  for (uint32_t parity = 0;; parity ^= 1) {
    const WorkTile work = next_tile<true>(shared.broadcast, next);
    if (work.query_tile < 0) return;
    const int head = problem.number(work.head);  // one register, where work.head is two
    const int block_query = work.query_tile * Traits::kRows,
              first_query = block_query + number * kRowsOfWarpgroup;
    Consumer<T, Traits, Problem> consumer(shared, problem, state, parity, number, first_query,
                                          first_query + row + threadIdx.x % 32 / 4);
    consumer.attend(problem.key_tiles(block_query + Traits::kRows - 1, Traits::kKeys));
    finish_rows(consumer.output, consumer.rows, problem, lse, head, consumer.query);
    if constexpr (Traits::kStoreByTma)
      hand_over_output(shared, number, parity,
                       [&] { store_to_smem(shared.output[number], consumer.output, row); });
    else
      store_from_registers<T>(
          consumer.output, consumer.query, problem.seqlen_q,
          [&, q = problem.head_of(head)](int query) { return o + problem.o_offset(q, query); }, 1.0f,
          problem.head_dim);
  }
}

}  // namespace flashbook::fa3
