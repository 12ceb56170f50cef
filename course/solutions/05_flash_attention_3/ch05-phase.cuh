/// Computes the squared norm of each key, one block per head. kNormThreads threads; shared memory:
/// NormShared<T>.
template <typename T>
__global__ void __launch_bounds__(kNormThreads)
    squared_norms(const __grid_constant__ CUtensorMap map,  // [heads, panels, keys, 64]
                  float* norms,                             // [heads, keys]
                  int keys) {
  auto& shared = *dynamic_shared<NormShared<T>>();
  const int tiles = (keys + kNormRows - 1) / kNormRows, head = blockIdx.x;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kNormStages; ++stage) {
      mbarrier_init(&shared.full[stage], 1);
      name_mbarrier(&shared.full[stage], "full", stage);
      mbarrier_init(&shared.empty[stage], kWarpgroup);
      name_mbarrier(&shared.empty[stage], "empty", stage);
    }
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are ready

  if (threadIdx.x >= kWarpgroup) {  // the producer
    for (int tile = 0; threadIdx.x == kWarpgroup && tile < tiles; ++tile) {
      const int stage = tile % kNormStages, round = tile / kNormStages;
      // Waits for the previous round's phase. In round 0 this is the phase before the first, which counts as
      // complete.
      mbarrier_wait(&shared.empty[stage], (round + 1) % 2);
      mbarrier_arrive_expect_tx(&shared.full[stage], sizeof(shared.tile[stage]));
      load(shared.tile[stage], map, &shared.full[stage], tile * kNormRows, {head, 0});
    }
    return;
  }

  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % kNormStages, round = tile / kNormStages;
    const int row = threadIdx.x / 4, key = tile * kNormRows + row;  // four threads per row, a quarter each
    mbarrier_wait(&shared.full[stage], round % 2);                  // the tile has landed
    float sum = 0.0f;
    for (int i = threadIdx.x % 4; i < kNormDim; i += 4) {
      const float x = to_float(shared.tile[stage].element[0][row][i]);
      sum += x * x;
    }
    mbarrier_arrive(&shared.empty[stage]);  // this thread has read it
    sum += __shfl_xor_sync(kWholeWarp, sum, 1);
    sum += __shfl_xor_sync(kWholeWarp, sum, 2);
    if (threadIdx.x % 4 == 0 && key < keys) norms[int64_t(head) * keys + key] = sum;
  }
}
