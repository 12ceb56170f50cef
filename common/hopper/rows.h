/// \file
/// The rows of an accumulator. Of 64 rows that a warpgroup holds, a thread has two, r and r + 8, and of their
/// columns every fourth pair: a row lies in the four lanes of a quad.
#pragma once
#include "common/hopper/problem.h"

namespace flashbook::hopper {

/// Which of a thread's two rows float i of an accumulator belongs to.
__host__ __device__ constexpr int row_of(int i) { return i / 2 % 2; }

/// The first of this thread's two rows, among its warpgroup's 64.
__device__ __forceinline__ int row_of_thread() {
  return threadIdx.x / 32 % kWarpsOfWarpgroup * kRowsOfWarp + threadIdx.x % 32 / 4;
}

/// What a thread knows of its two rows.
struct Rows {
  float max[2];  ///< of the scores so far, or of those before it last mattered
  float sum[2];  ///< of this thread's own probabilities: the quad's four are added once, at the end

  __device__ __forceinline__ static Rows none() { return {{-INFINITY, -INFINITY}, {0.0f, 0.0f}}; }
};

/// The maximum over the four lanes of a quad, in each of them.
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kWholeWarp, x, 1));
  return fmaxf(x, __shfl_xor_sync(kWholeWarp, x, 2));
}

/// The sum over the four lanes of a quad, in each of them.
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(kWholeWarp, x, 1);
  return x + __shfl_xor_sync(kWholeWarp, x, 2);
}

/// output *= correction, row by row.
template <int kFloats>
__device__ __forceinline__ void rescale_rows(float (&output)[kFloats], const float (&correction)[2]) {
#pragma unroll
  for (int i = 0; i < kFloats; ++i) output[i] *= correction[row_of(i)];
}

}  // namespace flashbook::hopper
