/// Computes output = P V for 64 queries and 64 keys. 128 threads; dynamic shared memory: MixShared<T,
/// kHeadDim>.
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kWarpgroup)
    weighted_values(const __grid_constant__ CUtensorMap p_map,  // [1, 1, 64, 64 keys]
                    const __grid_constant__ CUtensorMap v_map,  // [1, panels, 64 keys, 32]
                    float* output) {                            // [64, kHeadDim]
  auto& shared = *dynamic_shared<MixShared<T, kHeadDim>>();
  if (threadIdx.x == 0) {
    mbarrier_init(&shared.landed, 1);
    name_mbarrier(&shared.landed, "landed");
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&shared.landed, sizeof(shared.p) + sizeof(shared.v));
    load(shared.p, p_map, &shared.landed, 0, {0, 0});
    tma_load(shared.v, v_map, &shared.landed, {0, 0, 0, 0, 0});
  }
  __syncthreads();                   // the barrier is ready
  mbarrier_wait(&shared.landed, 0);  // P and V have arrived

  const uint64_t p = k_major(shared.p);
  // The next 32 columns are one panel further, and the next 8 keys 8 rows further.
  const uint64_t v =
      wgmma_descriptor<Swizzle::b64>(shared.v, kMixKeys * kNarrowRowBytes, 8 * kNarrowRowBytes);
  float sums[kHeadDim / 2];
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kMixKeys / kMmaK; ++step)
    wgmma<T, kHeadDim, Major::k, Major::mn>(sums, wgmma_advance(p, step * kMmaK * sizeof(T)),
                                            wgmma_advance(v, step * kMmaK * kNarrowRowBytes), step > 0);
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_pin(sums);

#pragma unroll
  for (int i = 0; i < kHeadDim / 2; ++i) {
    const MatrixPlace place = WgmmaM64<kHeadDim>::d(threadIdx.x, i);
    output[place.row * kHeadDim + place.column] = sums[i];
  }
}
