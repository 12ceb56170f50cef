//| # The block
//|
//| Shared memory is that of chapter 5's step 5, with two differences. The broadcast of the next tile of queries is a `Work`:
//| where rows lie, and how many tiles of keys come. And a word beside each stage of the pipeline has its tile's first key.
//|
//| ![Three threads of warpgroup 0 and the consumers, what lies between them in shared memory, and its barriers](../../docs/figures/hopper_block_persistent.svg)
#pragma once
#include <type_traits>

#include "chapters/09_masks/problem.cuh"
#include "common/hopper/pipeline.h"
#include "common/hopper/tiles.h"

namespace flashbook::masks {

constexpr int kWorkStages = 4;  ///< tiles of queries: the one at work, and others whose keys are under way

/// The broadcast is a pipeline too: one thread fills it, and all others read.
using WorkBroadcast = hopper::Pipeline<Work, kWorkStages>;

/// Stands for output tiles where there are none.
struct Nothing {};

//| | barrier of a consumer | who arrives | arrivals of a phase | who waits | first wait |
//| | --- | --- | --- | --- | --- |
//| | `q_full` | the thread that brings queries, with the bytes to come; then the bytes | 1 | the consumer | parity 0 |
//| | `q_empty` | lane 0 of each of its warps, when its last scores are computed | 4 | that thread | parity 1 |
//| | `output_full` | lane 0 of each of its warps, when all lanes have written | 4 | the thread that stores | parity 0 |
//| | `output_empty` | the thread that stores, when TMA has read the tile | 1 | the consumer | parity 1 |
/// Shared memory of a block.
template <typename T, typename Sizes>
struct BlockShared {
  using KeyTile = hopper::Tile<T, Sizes::kKeys, Sizes::kHeadDim>;
  using QueryTile = hopper::Tile<T, kRowsOfWarpgroup, Sizes::kHeadDim>;

  QueryTile q[Sizes::kConsumers];
  hopper::Pipeline<KeyTile, Sizes::kStages> pipeline;
  std::conditional_t<Sizes::kStoreByTma, QueryTile, Nothing> output[Sizes::kConsumers];
  WorkBroadcast work;
  int first_key[Sizes::kStages];  ///< of the keys in a stage
  uint64_t q_full[Sizes::kConsumers], q_empty[Sizes::kConsumers];
  uint64_t output_full[Sizes::kConsumers], output_empty[Sizes::kConsumers];
};

//| Each count is the number of those who arrive: one thread for `q_full` and `output_empty`, four warps for `q_empty` and
//| `output_full`, all warps of the consumers for the stages of the pipeline.
/// One thread makes the barriers, before the block's first __syncthreads.
template <typename T, typename Sizes>
__device__ inline void initialise(BlockShared<T, Sizes>& shared) {
  initialise(shared.pipeline, 1, Sizes::kConsumers * kWarpsOfWarpgroup, "full", "empty");
  // Read by all warps of the consumers, by the thread that brings queries, and by the one that stores.
  initialise(shared.work, 1, Sizes::kConsumers * kWarpsOfWarpgroup + (Sizes::kStoreByTma ? 2 : 1),
             "work_full", "work_empty");
  for (int i = 0; i < Sizes::kConsumers; ++i) {
    mbarrier_init(&shared.q_full[i], 1);
    name_mbarrier(&shared.q_full[i], "q_full", i);
    mbarrier_init(&shared.q_empty[i], kWarpsOfWarpgroup);
    name_mbarrier(&shared.q_empty[i], "q_empty", i);
    mbarrier_init(&shared.output_full[i], kWarpsOfWarpgroup);
    name_mbarrier(&shared.output_full[i], "output_full", i);
    mbarrier_init(&shared.output_empty[i], 1);
    name_mbarrier(&shared.output_empty[i], "output_empty", i);
  }
  fence_mbarrier_init();
}

//| A thread of the producer copies the work and gives the place back at once. A consumer has no register to spare for a copy
//| at d = 64 and d = 256. It reads the work where it lies, and gives the place back when the tile is done.
/// A copy of the block's next tile of queries. One thread, lane 0 of its warp.
__device__ __forceinline__ Work next_work(WorkBroadcast& broadcast,
                                          hopper::PipelineState<kWorkStages>& state) {
  wait_full(broadcast, state);
  const Work work = broadcast.tile[state.stage];
  release(broadcast, state);
  state.advance();
  return work;
}

}  // namespace flashbook::masks
