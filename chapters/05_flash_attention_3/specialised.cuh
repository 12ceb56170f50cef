//| # A block with roles
//|
//| This file has what steps 2 to 4 share, and step 5 in part: the sizes of a version, shared memory, and the
//| order of tiles.
//|
//| ![One thread of warpgroup 0 requests tiles from TMA; two consumers read them; the barriers between
//| them](../../docs/figures/hopper_block.svg)
#pragma once
#include "common/hopper/block.h"
#include "common/hopper/moments.h"
#include "common/hopper/pipeline.h"
#include "common/hopper/tiles.h"
#include "common/ptx/setmaxnreg.h"

namespace flashbook::fa3 {

using namespace hopper;

/// The choices of a version.
struct SpecialisedSizes {
  int head_dim;
  int consumers = 2;  ///< warpgroups that multiply, 64 queries each: 2 or 3
  int keys = 128;     ///< per tile
  int stages = 4;     ///< in the pipeline
};

/// One version of a kernel, as a type, so that its choices are made at compile time.
template <SpecialisedSizes kSizes>
struct SpecialisedTraits : Unrecorded {
  static constexpr int kHeadDim = kSizes.head_dim, kConsumers = kSizes.consumers, kKeys = kSizes.keys;
  static constexpr int kStages = kSizes.stages;
  static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
  static constexpr bool kPingpong = true;  ///< in the steps that have turns
};

//| ## The block
//|
//| Shared memory holds the queries of all consumers, the pipeline, and one more barrier, `q_full`: queries
//| are loaded once, so it has one phase and they are never released.
/// Shared memory of a block.
template <typename T, typename Traits>
struct SpecialisedShared {
  Tile<T, kRowsPerWarpgroup, Traits::kHeadDim> q[Traits::kConsumers];
  Pipeline<Tile<T, Traits::kKeys, Traits::kHeadDim>, Traits::kStages> pipeline;
  uint64_t q_full;  ///< the queries of all consumers have landed; one phase
};

//| ## The order of tiles
//|
//| Tiles of keys are processed from the last to the first: the ragged end and the causal diagonal come first,
//| and the loop over the rest needs no mask. Without overlap, consumers need K and V of one tile, then of the
//| next. With it (step 4) they need the next K before this V:
//|
//| | | | | | | | |
//| | --- | --- | --- | --- | --- | --- | --- |
//| | in pairs | K3 | V3 | K2 | V2 | K1 | V1 | K0 V0 |
//| | keys first | K3 | K2 | V3 | K1 | V2 | K0 | V1 V0 |

/// Streams the K and V of `tiles` tiles of keys through the pipeline, the last first. One thread of the
/// producer calls it.
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

}  // namespace flashbook::fa3
