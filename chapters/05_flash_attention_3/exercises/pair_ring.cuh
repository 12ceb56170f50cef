/// \file
/// Exercise ch05-ring: a ring whose stages hold two tiles.
#pragma once
#include "common/device/kernel.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"

namespace flashbook::fa3 {

// In the chapter a stage holds one tile. Here it holds a pair: a tile of K and its tile of V. K and V have a
// `full` barrier each, since scores can be computed while V is still in flight. They share one `empty`
// barrier, because a consumer releases the whole stage when it has read V. No state has to be kept: producer
// and consumers count pairs, 0, 1, 2 and so on, and pair number i uses stage i % kStages.

constexpr int kPairRows = 32, kPairDim = 64;  ///< rows and columns of a tile

/// In shared memory.
template <int kStages>
struct PairRing {
  alignas(1024) __half k[kStages][kPairRows][kPairDim];
  alignas(1024) __half v[kStages][kPairRows][kPairDim];
  uint64_t k_full[kStages], v_full[kStages], empty[kStages];
};

/// One thread initialises the barriers. `warps`: the number of warps in all consumers.
template <int kStages>
__device__ void initialise(PairRing<kStages>& ring, int warps) {
  for (int stage = 0; stage < kStages; ++stage) {
    mbarrier_init(&ring.k_full[stage], 1);
    name_mbarrier(&ring.k_full[stage], "k_full", stage);
    mbarrier_init(&ring.v_full[stage], 1);
    name_mbarrier(&ring.v_full[stage], "v_full", stage);
    mbarrier_init(&ring.empty[stage], warps);
    name_mbarrier(&ring.empty[stage], "empty", stage);
  }
  fence_mbarrier_init();
}

// BEGIN EXERCISE ch05-ring: once round the ring
/// Loads rows pair * kPairRows ... of K and of V into the pair's stage. One thread, the producer.
template <int kStages>
__device__ __forceinline__ void fill(PairRing<kStages>& ring, int pair,
                                     const CUtensorMap& k_map,  // [1, heads, 1, keys, kPairDim]
                                     const CUtensorMap& v_map,  // [1, heads, 1, keys, kPairDim]
                                     int head) {
  // TODO: what has to happen before each of the two copies?
  const int stage = pair % kStages;
  tma_load(ring.k[stage], k_map, &ring.k_full[stage], {0, pair * kPairRows, 0, head, 0});
  tma_load(ring.v[stage], v_map, &ring.v_full[stage], {0, pair * kPairRows, 0, head, 0});
}

/// Waits until the K of a pair has landed. Its V may still be in flight.
template <int kStages>
__device__ __forceinline__ void wait_for_k(PairRing<kStages>& ring, int pair) {
  mbarrier_wait(&ring.k_full[pair % kStages], 0);  // TODO: for which phase?
}

/// Waits until the V of a pair has landed.
template <int kStages>
__device__ __forceinline__ void wait_for_v(PairRing<kStages>& ring, int pair) {
  mbarrier_wait(&ring.v_full[pair % kStages], 0);  // TODO: for which phase?
}

/// Releases a pair's stage. All lanes of the warp have read K and V.
template <int kStages>
__device__ __forceinline__ void release([[maybe_unused]] PairRing<kStages>& ring, [[maybe_unused]] int pair) {
  // TODO
}
// END EXERCISE ch05-ring

}  // namespace flashbook::fa3
