/// \file
/// Exercise ch00-neighbours: a kernel that is right for one warp per block.
#pragma once
#include "common/device/kernel.h"

namespace flashbook::machine {

constexpr int kMaxThreads = 256;  ///< per block of add_neighbours

/// to[i] = from[i - 1] + from[i] + from[i + 1], where elements outside the array are 0. One thread per
/// element, and at most kMaxThreads per block. A block loads its elements into shared memory once, plus one
/// more on either side.
__global__ void add_neighbours(const float* from,  // [count]
                               int count,
                               float* to) {  // [count]
  __shared__ float near[kMaxThreads + 2];    // element first + j of the array is near[j + 1]
  const int first = int(blockIdx.x * blockDim.x), threads = int(blockDim.x), j = int(threadIdx.x);
  const int i = first + j;
  // BEGIN EXERCISE ch00-neighbours: right for one warp per block
  if (i >= count) return;
  near[j + 1] = from[i];
  if (j == 0) near[0] = i > 0 ? from[i - 1] : 0.0f;
  if (j == threads - 1) near[threads + 1] = i + 1 < count ? from[i + 1] : 0.0f;
  __syncwarp();
  to[i] = near[j] + near[j + 1] + near[j + 2];
  // END EXERCISE ch00-neighbours
}

}  // namespace flashbook::machine
