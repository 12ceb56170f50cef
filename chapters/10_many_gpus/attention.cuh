//| # Attention over a part of the keys
//|
//| This is step 5 of chapter 5 with two changes. The problem knows which tokens the queries and keys are
//| (`tokens.cuh`), and a result may be stored differently (`step4_carried.cuh`): as a part in float32, merged
//| with what the rank carries. Its consumers ([`consumer.cuh`](consumer.cuh)) work as in chapter 5: if one
//| rank has all tokens, the results are the same, bit by bit.
//|
//| ![Three threads of warpgroup 0 and the consumers, the shared memory between them, and its
//| barriers](../../docs/figures/hopper_block_persistent.svg)
#pragma once
#include <type_traits>

#include "chapters/10_many_gpus/consumer.cuh"
#include "chapters/10_many_gpus/documents.cuh"
#include "chapters/10_many_gpus/step4_carried.cuh"
#include "common/ptx/setmaxnreg.h"

namespace flashbook::many_gpus {

//| ## The sizes
//|
//| They are as in chapter 5. A version that merges parts stores directly from registers, because an output in
//| float32 needs twice the shared memory that is available.
/// The choices that each version states.
struct VersionSizes {
  int head_dim;
  int consumers = 2;                      ///< warpgroups that multiply, 64 queries each: 2 or 3
  int keys = head_dim == 256 ? 64 : 128;  ///< keys per tile
  int stages = head_dim == 64 ? 8 : 5;    ///< stages of the pipeline
  bool causal = false;
  bool carries = false;    ///< whether the results are parts
  bool documents = false;  ///< whether tiles come from a list
};

/// One version of the kernel, as a type.
template <VersionSizes kSizes>
struct Version {
  using Problem = std::conditional_t<kSizes.documents, DocumentsProblem, many_gpus::Problem>;
  static constexpr bool kDocuments = kSizes.documents;
  static constexpr int kHeadDim = kSizes.head_dim, kConsumers = kSizes.consumers, kKeys = kSizes.keys;
  static constexpr int kRows = kConsumers * kRowsPerWarpgroup;  ///< queries per tile
  static constexpr int kStages = kSizes.stages;
  static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
  //| The last six are chapter 5's switches; `host/launch.cuh` sets some of those that chapter 5 chooses by
  //| length. A causal version takes its tiles from a counter, the longest first; without a mask all tiles
  //| take equally long.
  static constexpr bool kCausal = kSizes.causal;
  static constexpr bool kCarries = kSizes.carries;
  static constexpr Schedule kSchedule = kCausal ? Schedule::dynamic_persistent : Schedule::static_persistent;
  static constexpr bool kSplitLoops = true;
  static constexpr bool kLazy = true;
  static constexpr bool kStoreByTma = kHeadDim != 256 && !kCarries;
  static constexpr bool kPingpong = kHeadDim == 64;
};

//| ## The producers
//|
//| Three threads of warpgroup 0, as in chapter 5: one streams keys and values, one loads queries, one stores
//| outputs. Query tiles are numbered from the first one that sees any of these keys.
/// Runs the thread that decides on the next tile, broadcasts it and streams its keys and values, the last
/// tile of keys first, each K before the V of the tile after it.
template <typename Traits, typename Shared>
__device__ void produce_keys(Shared& shared, const CUtensorMap& k_map, const CUtensorMap& v_map,
                             const typename Traits::Problem& problem, const TileOrder& order, int* counter) {
  PipelineState<Traits::kStages> state;
  hand_out_tiles<Traits::kSchedule, true>(shared.broadcast, order, counter, [&](const WorkTile& work) {
    const auto& here = problem.for_tile(work);
    const Head head = problem.kv_head(work.head);
    const int last_query = here.first_row(work, Traits::kRows) + Traits::kRows - 1;
    const int tiles = here.key_tiles(last_query, Traits::kKeys), first_key = here.first_key();
    fill(shared.pipeline, state, k_map, first_key + (tiles - 1) * Traits::kKeys, head);
#pragma unroll 1  // the producer has few registers
    for (int tile = tiles - 1; tile >= 0; --tile) {
      if (tile > 0) fill(shared.pipeline, state, k_map, first_key + (tile - 1) * Traits::kKeys, head);
      fill(shared.pipeline, state, v_map, first_key + tile * Traits::kKeys, head);
    }
  });
}

//| The other two process the same tiles. All three number query tiles from `first_tile` on, so a row keeps
//| its place in its warp whether or not earlier tiles are left out.
/// Runs the thread that loads queries.
template <typename Traits, typename Shared>
__device__ void produce_queries(Shared& shared, const CUtensorMap& q_map,
                                const typename Traits::Problem& problem) {
  PipelineState<kBroadcastStages> next;
  for (uint32_t parity = 0;; parity ^= 1) {  // alternates with the block's tiles of queries
    const WorkTile work = next_tile<false>(shared.broadcast, next);
    if (work.query_tile < 0) return;
    load_queries(shared, q_map, parity, problem.for_tile(work).first_row(work, Traits::kRows), work.head);
  }
}

//| A version that merges parts has no such thread: its results are stored from registers.
/// Runs the thread that stores outputs.
template <typename Traits, typename Shared>
__device__ void consume_outputs(Shared& shared, const CUtensorMap& output_map,
                                const typename Traits::Problem& problem) {
  PipelineState<kBroadcastStages> next;
  for (uint32_t parity = 0;; parity ^= 1) {
    const WorkTile work = next_tile<false>(shared.broadcast, next);
    if (work.query_tile < 0) return;
    store_outputs(shared, output_map, parity, problem.first_row(work, Traits::kRows), work.head);
  }
}

//| ## The kernel
//|
//| A whole result is stored as in chapter 5. A part is merged by `take_in`.
/// Computes attention for a rank's queries, for the tiles of `order` that this block takes, over the keys of
/// one rank or of all. Grid: as many blocks as there are multiprocessors, or fewer.
template <typename T, typename Traits>
__global__ void __launch_bounds__(Traits::kThreads, 1)
    attention(const __grid_constant__ CUtensorMap q_map,       // [batch, heads, panels, seqlen_q, 64]
              const __grid_constant__ CUtensorMap k_map,       // [batch, kv heads, panels, seqlen_k, 64]
              const __grid_constant__ CUtensorMap v_map,       // [batch, kv heads, panels, seqlen_k, 64]
              const __grid_constant__ CUtensorMap output_map,  // [batch, heads, panels, seqlen_q, 64]
              T* o,                                            // [batch, heads, seqlen_q, head_dim]
              float* lse,                                      // [batch, heads, seqlen_q]
              typename Traits::Problem problem, Carried carried, TileOrder order,
              int* counter) {  // Schedule::dynamic_persistent: must be 0 at the start
  constexpr int kConsumers = Traits::kConsumers;
  using Shared = PersistentShared<T, Traits>;
  static_assert(sizeof(Shared) <= kMaxSharedBytes, "more shared memory than a block of sm_90 may have");
  auto& shared = *dynamic_shared<Shared>();
  if (threadIdx.x == 0) {
    // The consumers' warps and the threads that load queries and store outputs read the next tile.
    initialise(shared.pipeline, 1, kConsumers * kWarpsPerWarpgroup, "full", "empty");
    initialise(shared.broadcast, kConsumers * kWarpsPerWarpgroup + (Traits::kStoreByTma ? 2 : 1));
    initialise(shared.barriers);
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are ready

  //| The roles: warpgroup 0 releases registers and produces, the others take them and multiply.
  const int warp = warp_of_block(), warpgroup = warp / kWarpsPerWarpgroup;
  if (warpgroup == 0) {
    setmaxnreg_dec<kProducerRegisters<kConsumers>>();
    if (threadIdx.x == 0) produce_keys<Traits>(shared, k_map, v_map, problem, order, counter);
    if (threadIdx.x == 32) produce_queries<Traits>(shared, q_map, problem);
    if constexpr (Traits::kStoreByTma)
      if (threadIdx.x == 64) consume_outputs<Traits>(shared, output_map, problem);
    return;
  }

  //| A consumer goes from tile to tile until there are none left. Another rank's keys may end at any token,
  //| so a causal version decides tile by tile whether to mask, as chapter 5 does. Rows are numbered within
  //| the rank; the problem maps it to its place in the sequence.
  setmaxnreg_inc<kConsumerRegisters<kConsumers>>();
  const int number = warpgroup - 1,
            row = warp % kWarpsPerWarpgroup * kRowsPerWarp;  // the warp's first row in the warpgroup
  open_turns<Traits>(number);
  PipelineState<kBroadcastStages> next;
  PipelineState<Traits::kStages> state;
  for (uint32_t parity = 0;; parity ^= 1) {
    const WorkTile work = next_tile<true>(shared.broadcast, next);
    if (work.query_tile < 0) return;
    const int head = problem.number(work.head);  // takes one register, work.head takes two
    const auto& here = problem.for_tile(work);
    const int block_query = here.first_row(work, Traits::kRows),
              first_query = block_query + number * kRowsPerWarpgroup;
    Consumer<T, Traits, std::remove_cvref_t<decltype(here)>> consumer(
        shared, here, state, parity, number, first_query, first_query + row + threadIdx.x % 32 / 4);
    consumer.attend(here.key_tiles(block_query + Traits::kRows - 1, Traits::kKeys));
    //| Here the two kinds of result diverge. A part is merged with what the rank carries; with documents
    //| every result is a part. A whole result is divided by its row sums and stored by TMA, or straight from
    //| registers where it does not fit in shared memory.
    if constexpr (Traits::kCarries) {
      take_in<T>(consumer.output, consumer.rows, here, here.carried(carried), o, lse, head, consumer.query);
    } else {
      finish_rows(consumer.output, consumer.rows, problem, lse, head, consumer.query);
      if constexpr (Traits::kStoreByTma)
        hand_over_output(shared, number, parity,
                         [&] { store_to_smem(shared.output[number], consumer.output, row); });
      else
        store_from_registers<T>(
            consumer.output, consumer.query, problem.seqlen_q,
            [&, q = problem.head_of(head)](int query) { return o + problem.o_offset(q, query); });
    }
  }
}

}  // namespace flashbook::many_gpus
