/// \file
/// Exercise ch08-empty: sequences that share a prefix.
#pragma once
#include "common/device/kernel.h"

namespace flashbook::decoding {

// Many sequences begin with the same keys, the prefix. Attention over it was computed once for all of them,
// and attention over each sequence's own keys separately. A prefix may be empty, and so may a sequence's own
// keys; a part without keys has the log-sum-exp -inf, and its O was never written. A row without keys gets O
// = 0 and -inf.

// BEGIN EXERCISE ch08-empty: NaN, but not always
/// Merges two attentions of each row. One block of a single warp per row.
__global__ void __launch_bounds__(32) merge_prefix(const float* prefix_o,    // [rows, 64]
                                                   const float* prefix_lse,  // [rows]
                                                   const float* own_o,       // [rows, 64]
                                                   const float* own_lse,     // [rows]
                                                   float* o,                 // [rows, 64]
                                                   float* lse) {             // [rows]
  const int row = blockIdx.x;
  const float a = prefix_lse[row], b = own_lse[row], max = fmaxf(a, b);
  const float weight_a = expf(a - max);
  const float weight_b = expf(b - max);
  const float sum = weight_a + weight_b;
  for (int column = threadIdx.x; column < 64; column += 32) {
    const float value = weight_a * prefix_o[row * 64 + column] + weight_b * own_o[row * 64 + column];
    o[row * 64 + column] = value / sum;
  }
  if (threadIdx.x == 0) lse[row] = max + logf(sum);
}
// END EXERCISE ch08-empty

}  // namespace flashbook::decoding
