#pragma once
#include "chapters/04_flash_attention_2/warp_tile.cuh"

namespace flashbook::fa2 {

// Attention whose scores are all equal is the mean of the values. Two stages: a tile is in flight while the
// previous one is summed.

constexpr int kMeanDim = 64, kMeanRows = 32, kMeanThreads = 128;
constexpr int kMeanTileBytes = kMeanRows * kMeanDim * 2, kMeanSharedBytes = 2 * kMeanTileBytes;

// BEGIN EXERCISE ch04-wait: the last tile
/// The mean of a head's values, one block per head. 128 threads; dynamic shared memory: kMeanSharedBytes.
template <typename T>
__global__ void mean_of_values(const T* v,   // [heads, seqlen, kMeanDim]
                               float* mean,  // [heads, kMeanDim]
                               int seqlen) {
  unsigned char* stages = dynamic_shared<unsigned char>();  // two tiles, [kMeanRows, kMeanDim] each
  const int column = threadIdx.x % kMeanDim, part = threadIdx.x / kMeanDim;
  const T* rows = v + int64_t(blockIdx.x) * seqlen * kMeanDim;
  const int tiles = (seqlen + kMeanRows - 1) / kMeanRows;
  const auto stage = [&](int tile) { return stages + tile % 2 * kMeanTileBytes; };
  const auto load = [&](int tile) {  // rows beyond the last become zeros
    copy_tile<true, kMeanRows, kMeanDim, kMeanThreads>(
        stage(tile), rows + int64_t(tile) * kMeanRows * kMeanDim, seqlen - tile * kMeanRows);
  };

  load(0);
  cp_async_commit();
  float sum = 0.0f;
  for (int tile = 0; tile < tiles; ++tile) {
    const int next = tile + 1;
    if (next < tiles) {
      load(next);
      cp_async_commit();
    }
    cp_async_wait<1>();  // this thread's part of the tile, but not of the next
    __syncthreads();     // every thread's part of the tile has arrived
    for (int row = part; row < kMeanRows; row += kMeanThreads / kMeanDim) {
      const unsigned char* piece = stage(tile) + swizzled<kMeanDim * 2>(row, column / 8);
      sum += to_float(reinterpret_cast<const T*>(piece)[column % 8]);
    }
    __syncthreads();  // no thread still reads this stage: the tile after the next may overwrite it
  }

  float* parts = reinterpret_cast<float*>(stages);  // the stages are free
  parts[threadIdx.x] = sum;
  __syncthreads();  // both parts of each column are stored
  if (part == 0) mean[blockIdx.x * kMeanDim + column] = (sum + parts[kMeanDim + column]) / seqlen;
}
// END EXERCISE ch04-wait

}  // namespace flashbook::fa2
