/// Averages each head's values, one block per head. 128 threads; dynamic shared memory: kMeanSharedBytes.
template <typename T>
__global__ void mean_of_values(const T* v,   // [heads, seqlen, kMeanDim]
                               float* mean,  // [heads, kMeanDim]
                               int seqlen) {
  unsigned char* stages = dynamic_shared<unsigned char>();  // two tiles, [kMeanRows, kMeanDim] each
  const int column = threadIdx.x % kMeanDim, part = threadIdx.x / kMeanDim;
  const T* rows = v + int64_t(blockIdx.x) * seqlen * kMeanDim;
  const int tiles = (seqlen + kMeanRows - 1) / kMeanRows;
  const auto stage = [&](int tile) { return stages + tile % 2 * kMeanTileBytes; };
  const auto load = [&](int tile) {  // rows past the last one are zero-filled
    copy_tile<true, kMeanRows, kMeanDim, kMeanThreads>(
        stage(tile), rows + int64_t(tile) * kMeanRows * kMeanDim, seqlen - tile * kMeanRows);
  };

  load(0);
  cp_async_commit();
  float sum = 0.0f;
  for (int tile = 0; tile < tiles; ++tile) {
    const int next = tile + 1;
    if (next < tiles) load(next);
    cp_async_commit();   // an empty group past the last tile, so that the wait counts the same in every round
    cp_async_wait<1>();  // waits for this thread's part of the tile, but not of the next
    __syncthreads();     // every thread's part of the tile has arrived
    for (int row = part; row < kMeanRows; row += kMeanThreads / kMeanDim) {
      const unsigned char* piece = stage(tile) + swizzled<kMeanDim * 2>(row, column / 8);
      sum += to_float(reinterpret_cast<const T*>(piece)[column % 8]);
    }
    __syncthreads();  // no thread reads this stage any more: the tile after the next may overwrite it
  }

  float* parts = reinterpret_cast<float*>(stages);  // the stages are free
  parts[threadIdx.x] = sum;
  __syncthreads();  // both partial sums of each column are stored
  if (part == 0) mean[blockIdx.x * kMeanDim + column] = (sum + parts[kMeanDim + column]) / seqlen;
}
