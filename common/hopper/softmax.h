/// \file
/// Online softmax of what a warpgroup holds, one tile of keys at a time.
/// chapters/05_flash_attention_3/softmax.cuh explains it.
#pragma once
#include "common/hopper/rows.h"
#include "common/ptx/math.h"

namespace flashbook::hopper {

constexpr float kLazyLimit = 8;  ///< log2 of how far a probability may exceed 1

/// Turns scores into probabilities and takes them into `rows`. What was summed before must be multiplied by
/// `correction`. Returns whether any row of the warp needs that: always, unless kLazy. kMasked: a row may
/// have seen no key yet.
template <bool kMasked, bool kLazy, int kFloats>
__device__ __forceinline__ bool softmax(float (&scores)[kFloats], Rows& rows, float (&correction)[2],
                                        float scale_log2) {
  float new_max[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float a = scores[2 * r], b = scores[2 * r + 1];  // two chains: each fmaxf waits only for every other one
#pragma unroll
    for (int i = 4 + 2 * r; i < kFloats; i += 4) {
      a = fmaxf(a, scores[i]);
      b = fmaxf(b, scores[i + 1]);
    }
    new_max[r] = quad_max(fmaxf(fmaxf(a, b), rows.max[r]));
  }

  bool rescale = true;
  if constexpr (kLazy) {
    const float rise = fmaxf(new_max[0] - rows.max[0], new_max[1] - rows.max[1]);
    rescale = __any_sync(kWholeWarp, rise * scale_log2 > kLazyLimit);
    if (!rescale) new_max[0] = rows.max[0], new_max[1] = rows.max[1];
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float subtract = kMasked && new_max[r] == -INFINITY ? 0.0f : new_max[r] * scale_log2;
    correction[r] = exp2_approx(rows.max[r] * scale_log2 - subtract);
    rows.max[r] = new_max[r];
    float a = rows.sum[r] * correction[r], b = 0;
#pragma unroll
    for (int i = 2 * r; i < kFloats; i += 4) {
      a += scores[i] = exp2_approx(scores[i] * scale_log2 - subtract);
      b += scores[i + 1] = exp2_approx(scores[i + 1] * scale_log2 - subtract);
    }
    rows.sum[r] = a + b;
  }
  return rescale;
}

}  // namespace flashbook::hopper
