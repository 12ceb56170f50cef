//| # The pipeline
//|
//| Keys and values come through a *pipeline*: a ring of *stages* in shared memory. A stage holds one tile, of K or of V, and
//| has two mbarriers:
//|
//| | barrier | who arrives | arrivals of a phase | who waits | first wait |
//| | --- | --- | --- | --- | --- |
//| | `full`  | the producer, with the number of bytes to come; then the bytes | 1 | every consumer thread | parity 0 |
//| | `empty` | lane 0 of each consumer warp, when the products that read the tile are done | 4 a warpgroup | the producer | parity 1 |
//|
//| Parity 0 is the first phase of a barrier: consumers wait for the end of the first filling. The producer must not wait
//| for a first emptying, since the stages begin empty: it asks for parity 1, the phase *before* the first, which counts as
//| over. When both have gone through all stages once, they ask for the other parity.
//|
//| Nobody counts tiles. Producer and consumers go through the stages in the same order, each with a state of its own, and
//| the barriers keep them less than one round apart. That is why one bit of parity is enough. (CUTLASS has the same:
//| `PipelineTmaAsync` and `PipelineState`.)
//|
//| ![What is in each of two stages, event by event, and the phases of its two barriers, with arrivals and waits](../../docs/figures/ring_phases.svg)
#pragma once
#include "chapters/05_flash_attention_3/moments.cuh"
#include "chapters/05_flash_attention_3/tiles.cuh"
#include "common/ptx/mbarrier.h"

namespace flashbook::flash3 {

constexpr int kWarpsOfWarpgroup = kWarpgroup / 32;

template <typename T, int kKeys, int kHeadDim, int kStages>
struct Pipeline {
  Tile<T, kKeys, kHeadDim> tile[kStages];
  uint64_t full[kStages];   ///< a tile has landed
  uint64_t empty[kStages];  ///< all consumers have read it
};

//| `full` takes one arrival a phase, the producer's; what it really waits for are the bytes. `empty` takes one arrival
//| for each warp of each consumer. The names are for the simulator: its reports say `empty[1]`.
/// One thread makes the barriers, before the block's first __syncthreads.
template <typename T, int kKeys, int kHeadDim, int kStages>
__device__ void initialise(Pipeline<T, kKeys, kHeadDim, kStages>& pipeline, int consumers) {
  for (int stage = 0; stage < kStages; ++stage) {
    mbarrier_init(&pipeline.full[stage], 1);
    name_mbarrier(&pipeline.full[stage], "full", stage);
    mbarrier_init(&pipeline.empty[stage], consumers * kWarpsOfWarpgroup);
    name_mbarrier(&pipeline.empty[stage], "empty", stage);
  }
}

/// Where in the pipeline one of its users is: a stage, and the parity of the phase there.
template <int kStages>
struct PipelineState {
  int stage = 0;
  uint32_t phase = 0;  ///< 0 in the first round, then 1, then 0

  __device__ __forceinline__ PipelineState next() const {
    return stage + 1 == kStages ? PipelineState{0, phase ^ 1} : PipelineState{stage + 1, phase};
  }
  __device__ __forceinline__ void advance() { *this = next(); }
};

//| ## Fill a stage
//|
//| First the stage must be empty, then its bytes are announced, then TMA is asked. The three may not change places:
//| announced bytes belong to the phase that begins when the stage is empty.
/// Waits for the stage to be empty and has `head`'s rows from `first_row` on brought into it. One thread of
/// the producer.
template <typename T, int kKeys, int kHeadDim, int kStages>
__device__ __forceinline__ void fill(Pipeline<T, kKeys, kHeadDim, kStages>& pipeline,
                                     PipelineState<kStages>& state, const CUtensorMap& map, int first_row,
                                     Head head) {
  mbarrier_wait(&pipeline.empty[state.stage],
                state.phase ^ 1);  // all consumers have read what the stage held before
  mbarrier_arrive_expect_tx(&pipeline.full[state.stage], Tile<T, kKeys, kHeadDim>::kBytes);
  load(pipeline.tile[state.stage], map, &pipeline.full[state.stage], first_row, head);
  state.advance();
}

//| ## Read it, and give it back
//|
//| A consumer waits for the phase that it is in. All its threads wait, each for itself.
/// Waits until the tile at `state` has landed.
template <typename T, int kKeys, int kHeadDim, int kStages>
__device__ __forceinline__ void wait_full(Pipeline<T, kKeys, kHeadDim, kStages>& pipeline,
                                          const PipelineState<kStages>& state) {
  mbarrier_wait(&pipeline.full[state.stage], state.phase);
}

//| One lane may arrive for its whole warp, once all lanes have finished reading. After `wgmma_wait` they have: it returns
//| when the products of the whole warpgroup are done, and WGMMA is the only reader of a tile.
/// Says that this warp has read the tile at `state`.
template <typename T, int kKeys, int kHeadDim, int kStages>
__device__ __forceinline__ void release(Pipeline<T, kKeys, kHeadDim, kStages>& pipeline,
                                        const PipelineState<kStages>& state) {
  if (threadIdx.x % 32 == 0) mbarrier_arrive(&pipeline.empty[state.stage]);
}

//| ## In which order
//|
//| Tiles of keys go from the last to the first: the ragged end and the causal diagonal come first, and the loop over the
//| rest needs no mask. Without overlap consumers want K and V of one tile, then of the next. With it (step 4) they want the
//| next K before this V:
//|
//| | | | | | | | |
//| | --- | --- | --- | --- | --- | --- | --- |
//| | in pairs | K3 | V3 | K2 | V2 | K1 | V1 | K0 V0 |
//| | keys first | K3 | K2 | V3 | K1 | V2 | K0 | V1 V0 |

/// Streams the K and V of `tiles` tiles of keys through the pipeline, the last first. One thread of the
/// producer.
template <typename Config, bool kKeysFirst, typename T, int kKeys, int kHeadDim, int kStages>
__device__ __forceinline__ void stream(Pipeline<T, kKeys, kHeadDim, kStages>& pipeline,
                                       PipelineState<kStages>& state, const CUtensorMap& k_map,
                                       const CUtensorMap& v_map, int tiles, const Head& kv_head) {
  if constexpr (kKeysFirst) fill(pipeline, state, k_map, (tiles - 1) * kKeys, kv_head);
#pragma unroll 1  // the producer has few registers
  for (int tile = tiles - 1; tile >= 0; --tile) {
    const int k_tile = kKeysFirst ? tile - 1 : tile;
    if (k_tile >= 0) {
      fill(pipeline, state, k_map, k_tile * kKeys, kv_head);
      Config::record(Moment::keys_sent, k_tile);
    }
    fill(pipeline, state, v_map, tile * kKeys, kv_head);
    Config::record(Moment::values_sent, tile);
  }
}

}  // namespace flashbook::flash3
