/// Returns the parity of the phase in which pair `pair` is in its stage, for any of the stage's barriers.
template <int kStages>
__device__ __forceinline__ uint32_t parity_of(int pair) {
  return pair / kStages % 2;
}

/// Loads rows pair * kPairRows ... of K and of V into the pair's stage. One thread, the producer.
template <int kStages>
__device__ __forceinline__ void fill(PairRing<kStages>& ring, int pair,
                                     const CUtensorMap& k_map,  // [1, heads, 1, keys, kPairDim]
                                     const CUtensorMap& v_map,  // [1, heads, 1, keys, kPairDim]
                                     int head) {
  const int stage = pair % kStages;
  mbarrier_wait(&ring.empty[stage], parity_of<kStages>(pair) ^ 1);  // the previous pair has been read
  mbarrier_arrive_expect_tx(&ring.k_full[stage], sizeof(ring.k[stage]));
  tma_load(ring.k[stage], k_map, &ring.k_full[stage], {0, pair * kPairRows, 0, head, 0});
  mbarrier_arrive_expect_tx(&ring.v_full[stage], sizeof(ring.v[stage]));
  tma_load(ring.v[stage], v_map, &ring.v_full[stage], {0, pair * kPairRows, 0, head, 0});
}

/// Waits until the K of a pair has landed. Its V may still be in flight.
template <int kStages>
__device__ __forceinline__ void wait_for_k(PairRing<kStages>& ring, int pair) {
  mbarrier_wait(&ring.k_full[pair % kStages], parity_of<kStages>(pair));
}

/// Waits until the V of a pair has landed.
template <int kStages>
__device__ __forceinline__ void wait_for_v(PairRing<kStages>& ring, int pair) {
  mbarrier_wait(&ring.v_full[pair % kStages], parity_of<kStages>(pair));
}

/// Releases a pair's stage. All lanes of the warp have read K and V.
template <int kStages>
__device__ __forceinline__ void release(PairRing<kStages>& ring, int pair) {
  if (threadIdx.x % 32 == 0) mbarrier_arrive(&ring.empty[pair % kStages]);
}
