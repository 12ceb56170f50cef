/// Multiplies each sequence by its own factor, the last one first. One warp; dynamic shared memory:
/// ScaledShared.
__global__ void __launch_bounds__(32)
    scale_sequences(const __grid_constant__ CUtensorMap from,  // [kBack + 1, rows + 1, kMapRows, 64], f16
                    const __grid_constant__ CUtensorMap to,    // likewise
                    const int* first_row,                      // [sequences + 1]
                    const float* factor,                       // [sequences]
                    int sequences) {
  auto& shared = *dynamic_shared<ScaledShared>();
  if (threadIdx.x == 0) {
    mbarrier_init(&shared.landed, 1);
    name_mbarrier(&shared.landed, "landed");
    fence_mbarrier_init();
  }
  __syncwarp();  // the barrier is ready
  uint32_t parity = 0;
  for (int sequence = sequences - 1; sequence >= 0; --sequence) {
    const int begin = first_row[sequence], count = first_row[sequence + 1] - begin;
    for (int tile = 0; tile < count; tile += kScaledRows, parity ^= 1) {
      // Row kMapRows does not exist, and with this `end` the sequence ends there.
      const int row = kMapRows - count + tile, end = begin + count;
      if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(&shared.landed, sizeof(shared.tile));
        tma_load(shared.tile, from, &shared.landed, {0, row, end, kBack});
      }
      mbarrier_wait(&shared.landed, parity);  // the tile has arrived
      for (int i = threadIdx.x; i < kScaledRows * kScaledColumns; i += 32) {
        __half& element = shared.tile[i / kScaledColumns][i % kScaledColumns];
        element = from_float<__half>(to_float(element) * factor[sequence]);
      }
      fence_proxy_async();
      __syncwarp();  // all lanes have written, and TMA sees it
      if (threadIdx.x == 0) {
        tma_store(to, shared.tile, {0, row, end, kBack});
        tma_store_commit();
        tma_store_wait_read<0>();
      }
      __syncwarp();  // TMA has read the tile: the next one may be loaded
    }
  }
}
