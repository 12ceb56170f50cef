/// \file
/// A pipeline: stages in shared memory, each a tile and two mbarriers, that one side fills and the other
/// reads, in the same order. chapters/05_flash_attention_3/pipeline.cuh explains it.
///
///     producer:  fill(pipeline, state, map, row, head);      // waits for an empty stage, starts the copy
///     consumer:  wait_full(pipeline, state);                 // the tile is there
///                ...                                         // reads it
///                release(pipeline, state);                   // this warp has
///                state.advance();
#pragma once
#include "common/device/tensor_map_type.h"
#include "common/hopper/problem.h"
#include "common/ptx/mbarrier.h"

namespace flashbook::hopper {

/// In shared memory.
template <typename Tile_, int kStages_>
struct Pipeline {
  static constexpr int kStages = kStages_;
  Tile_ tile[kStages];
  uint64_t full[kStages];   ///< a tile is there
  uint64_t empty[kStages];  ///< all have read it
};

/// Where in a pipeline one of its users is: a stage, and the parity of the phase there.
template <int kStages>
struct PipelineState {
  int stage = 0;
  uint32_t phase = 0;  ///< 0 in the first round, then 1, then 0

  __device__ __forceinline__ void advance() {
    if (++stage == kStages) stage = 0, phase ^= 1;
  }
};

/// One thread makes the barriers, before the block's first __syncthreads. `producers` and `consumers` are
/// warps that arrive, or 1 for a thread with TMA. The names are for the simulator's reports.
template <typename Tile, int kStages>
__device__ void initialise(Pipeline<Tile, kStages>& pipeline, int producers, int consumers, const char* full,
                           const char* empty) {
  for (int stage = 0; stage < kStages; ++stage) {
    mbarrier_init(&pipeline.full[stage], producers);
    name_mbarrier(&pipeline.full[stage], full, stage);
    mbarrier_init(&pipeline.empty[stage], consumers);
    name_mbarrier(&pipeline.empty[stage], empty, stage);
  }
}

/// Waits until all consumers have read what the stage at `state` held before.
template <typename Tile, int kStages>
__device__ __forceinline__ void wait_empty(Pipeline<Tile, kStages>& pipeline,
                                           const PipelineState<kStages>& state) {
  mbarrier_wait(&pipeline.empty[state.stage], state.phase ^ 1);
}

/// Waits for the stage to be empty and has `head`'s rows from `first_row` on brought into it, by the tile's
/// `load(tile, map, barrier, first_row, head)`. One thread.
template <typename Tile, int kStages>
__device__ __forceinline__ void fill(Pipeline<Tile, kStages>& pipeline, PipelineState<kStages>& state,
                                     const CUtensorMap& map, int first_row, const Head& head) {
  wait_empty(pipeline, state);
  mbarrier_arrive_expect_tx(&pipeline.full[state.stage], sizeof(Tile));
  load(pipeline.tile[state.stage], map, &pipeline.full[state.stage], first_row, head);
  state.advance();
}

/// Waits until the tile at `state` is there.
template <typename Tile, int kStages>
__device__ __forceinline__ void wait_full(Pipeline<Tile, kStages>& pipeline,
                                          const PipelineState<kStages>& state) {
  mbarrier_wait(&pipeline.full[state.stage], state.phase);
}

/// Says that this warp has read the tile at `state`.
template <typename Tile, int kStages>
__device__ __forceinline__ void release(Pipeline<Tile, kStages>& pipeline,
                                        const PipelineState<kStages>& state) {
  if (threadIdx.x % 32 == 0) mbarrier_arrive(&pipeline.empty[state.stage]);
}

}  // namespace flashbook::hopper
