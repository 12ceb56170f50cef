/// \file
/// Exercise ch09-softcap: the derivative of a capped score.
#pragma once
#include "common/device/kernel.h"

namespace flashbook::masks {

// Scores x are capped, c tanh(x / c), then masked, and then go through the softmax: P. The gradient flows
// backwards: given dP, the gradient of P, and D, the sum of P dP over a row, the gradient of the capped
// scores is P (dP - D). The gradient of x also has the cap's derivative as a factor, 1 - tanh^2(x / c).

/// Returns the sum over a warp, in all lanes.
__device__ inline float sum_of_warp(float value) {
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffff, value, distance);
  return value;
}

// BEGIN EXERCISE ch09-softcap: NaN where nothing is seen
/// The gradient of each row of scores. One block of a single warp per row.
__global__ void __launch_bounds__(32) capped_gradient(const float* x,   // [rows, keys]
                                                      const float* dp,  // [rows, keys]
                                                      float* dx,        // [rows, keys]
                                                      int keys, float cap, bool causal) {
  const int end = causal ? min(int(blockIdx.x) + 1, keys) : keys;
  x += blockIdx.x * keys, dp += blockIdx.x * keys, dx += blockIdx.x * keys;
  const auto score = [&](int key) { return key < end ? cap * tanhf(x[key] / cap) : -INFINITY; };
  float sum = 0, d = 0;
  for (int key = threadIdx.x; key < keys; key += 32) {
    const float p = expf(score(key) - cap);  // no score exceeds the cap
    sum += p;
    d += p * dp[key];
  }
  sum = sum_of_warp(sum);
  d = sum_of_warp(d) / sum;
  for (int key = threadIdx.x; key < keys; key += 32) {
    const float p = expf(score(key) - cap) / sum;
    const float capped = score(key) / cap;
    dx[key] = p * (dp[key] - d) * (1 - capped * capped);
  }
}
// END EXERCISE ch09-softcap

}  // namespace flashbook::masks
