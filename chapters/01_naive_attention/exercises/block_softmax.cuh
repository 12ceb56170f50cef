#pragma once
#include "chapters/01_naive_attention/problem.cuh"
#include "common/ptx/convert.h"

namespace flashbook::naive {

// Softmax again, this time with a whole block of 256 threads per row, for long rows. The threads combine
// their maxima and their sums in shared memory.

constexpr int kBlockThreads = 256;

// BEGIN EXERCISE ch01-block-softmax: a block for a row, and NaN
/// Combines the values of all threads of the block, and returns the result in every thread.
template <typename Combine>
__device__ float block_reduce(float (&partial)[kBlockThreads], float value, Combine combine) {
  const int thread = threadIdx.x;
  partial[thread] = value;
  __syncthreads();  // every value is stored before any thread combines two
  for (int half = kBlockThreads / 2; half > 0; half /= 2) {
    if (thread < half) partial[thread] = combine(partial[thread], partial[thread + half]);
    __syncthreads();  // the lower half is combined before it is halved again
  }
  const float result = partial[0];
  __syncthreads();  // all threads have the result before the next reduction overwrites it
  return result;
}

/// P = softmax(S) and the log-sum-exp, one block per row. Grid: (rows).
template <typename T>
__global__ void block_softmax(const float* scores,  // [batch * heads, seqlen_q, score_stride]
                              T* probabilities,     // [batch * heads, seqlen_q, score_stride]
                              float* lse,           // [batch * heads, seqlen_q]
                              Problem problem) {
  __shared__ float partial[kBlockThreads];  // for the maximum, then for the sum
  const int thread = threadIdx.x;
  const int64_t row = blockIdx.x;
  const int visible = problem.visible_keys(int(row % problem.seqlen_q));
  const float* s = scores + row * problem.score_stride;
  T* p = probabilities + row * problem.score_stride;

  if (thread >= visible) return;  // the row has no element for this thread
  float row_max = -INFINITY;
  for (int j = thread; j < visible; j += kBlockThreads) row_max = fmaxf(row_max, s[j]);
  row_max = block_reduce(partial, row_max, [](float a, float b) { return fmaxf(a, b); });

  float row_sum = 0.0f;
  for (int j = thread; j < visible; j += kBlockThreads) row_sum += __expf(s[j] - row_max);
  row_sum = block_reduce(partial, row_sum, [](float a, float b) { return a + b; });

  for (int j = thread; j < visible; j += kBlockThreads)
    p[j] = from_float<T>(__expf(s[j] - row_max) / row_sum);
  if (thread == 0) lse[row] = visible > 0 ? row_max + logf(row_sum) : -INFINITY;
}
// END EXERCISE ch01-block-softmax

}  // namespace flashbook::naive
