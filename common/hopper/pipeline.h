//| # The pipeline
//|
//| Keys and values pass through a *pipeline*: a ring of *stages* in shared memory. A stage holds one tile, of
//| K or of V, and has two mbarriers. With TMA as the producer and warpgroups as consumers:
//|
//| | barrier | who arrives | arrivals of a phase | who waits | first wait |
//| | --- | --- | --- | --- | --- |
//| | `full`  | the producer, with the number of bytes to come; then the bytes | 1 | every consumer thread | parity 0 |
//| | `empty` | lane 0 of each consumer warp, when the products that read the tile are done | 4 per warpgroup | the producer | parity 1 |
//|
//| A wait specifies a parity, and lasts as long as the current phase has that parity. The first phase has
//| parity 0. Consumers specify 0, and wait until a stage has been filled for the first time. The producer
//| must not wait at first, since the stages start out empty, so it specifies parity 1. After going once
//| through all stages, both flip their parity.
//|
//| No tiles are counted. Producer and consumers go through the stages in the same order, each with its own
//| state, and the barriers keep the producer at most one round of the stages ahead. That is why one bit of
//| parity is enough. (CUTLASS has equivalents: `PipelineTmaAsync` and `PipelineState`.)
//|
//|     producer:  fill(pipeline, state, map, row, head);      // waits for an empty stage, starts the copy
//|     consumer:  wait_full(pipeline, state);                 // the tile is there
//|                ...                                         // reads it
//|                release(pipeline, state);                   // this warp has
//|                state.advance();
//|
//| ![What is in each of two stages, event by event, and the phases of its two barriers, with arrivals and
//| waits](../../docs/figures/ring_phases.svg)
#pragma once
#include "common/device/tensor_map_type.h"
#include "common/hopper/problem.h"
#include "common/ptx/mbarrier.h"

namespace flashbook::hopper {

/// The part of a pipeline that is in shared memory.
template <typename Tile_, int kStages_>
struct Pipeline {
  static constexpr int kStages = kStages_;
  Tile_ tile[kStages];
  uint64_t full[kStages];   ///< the tile has landed
  uint64_t empty[kStages];  ///< all consumers have read it
};

/// The position of one of a pipeline's users: a stage, and the parity of the phase there.
template <int kStages>
struct PipelineState {
  int stage = 0;
  uint32_t phase = 0;  ///< 0 in the first round, then 1, then 0

  __device__ __forceinline__ PipelineState next() const {
    return stage + 1 == kStages ? PipelineState{0, phase ^ 1} : PipelineState{stage + 1, phase};
  }
  __device__ __forceinline__ PipelineState previous() const {
    return stage == 0 ? PipelineState{kStages - 1, phase ^ 1} : PipelineState{stage - 1, phase};
  }
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) stage = 0, phase ^= 1;
  }
};

//| `full` expects one arrival per phase, from the producer; the real wait is for the bytes. `empty` expects
//| one arrival per consumer warp. The names are for the simulator: its reports say `empty[1]`.
/// Initialises the barriers. Call it from one thread, before the block's first __syncthreads. `producers` and
/// `consumers` are numbers of warps that arrive, or 1 for a thread with TMA.
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

//| ## Fill a stage
//|
//| First the stage must be empty, then its bytes are announced, and then TMA is started. The order is fixed:
//| announced bytes belong to the phase that begins when the stage becomes empty.
/// Waits until all consumers have read the stage at `state`.
template <typename Tile, int kStages>
__device__ __forceinline__ void wait_empty(Pipeline<Tile, kStages>& pipeline,
                                           const PipelineState<kStages>& state) {
  mbarrier_wait(&pipeline.empty[state.stage], state.phase ^ 1);
}

/// Waits for the stage to be empty and loads `head`'s rows from `first_row` on into it, with the tile's
/// `load(tile, map, barrier, first_row, head)`. Call it from one thread of the producer.
template <typename Tile, int kStages, typename Map>
__device__ __forceinline__ void fill(Pipeline<Tile, kStages>& pipeline, PipelineState<kStages>& state,
                                     const Map& map, int first_row, const Head& head) {
  wait_empty(pipeline, state);
  mbarrier_arrive_expect_tx(&pipeline.full[state.stage], sizeof(Tile));
  load(pipeline.tile[state.stage], map, &pipeline.full[state.stage], first_row, head);
  state.advance();
}

//| ## Read and release a stage
/// Waits until the tile at `state` has landed.
template <typename Tile, int kStages>
__device__ __forceinline__ void wait_full(Pipeline<Tile, kStages>& pipeline,
                                          const PipelineState<kStages>& state) {
  mbarrier_wait(&pipeline.full[state.stage], state.phase);
}

//| One lane may arrive for its whole warp, once all lanes have finished reading. This holds after
//| `wgmma_wait`, which returns when the products of the whole warpgroup are complete, and WGMMA is the only
//| reader of a tile.
/// Arrives for this warp, which has read the tile at `state`.
template <typename Tile, int kStages>
__device__ __forceinline__ void release(Pipeline<Tile, kStages>& pipeline,
                                        const PipelineState<kStages>& state) {
  if (threadIdx.x % 32 == 0) mbarrier_arrive(&pipeline.empty[state.stage]);
}

}  // namespace flashbook::hopper
