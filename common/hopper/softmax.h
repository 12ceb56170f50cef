/// \file
/// Online softmax of what a warpgroup holds, one tile of keys at a time.
/// chapters/05_flash_attention_3/softmax.cuh explains it.
#pragma once
#include "common/hopper/rows.h"
#include "common/ptx/math.h"

namespace flashbook::hopper {

constexpr float kLargeScore = 0x1p12;  ///< c max, from where on the maximum is subtracted before the scale
constexpr float kLazyLimit = 8;        ///< log2 of how far a probability may exceed 1, or fall short of it

/// Rows whose maxima are taken lazily.
struct LazyRows : Rows {
  int limit[2];  ///< bits of the largest score that `max` still serves; -1 if it serves none

  __device__ __forceinline__ static LazyRows none() { return {Rows::none(), {-1, -1}}; }
};

/// Takes the maxima of scores into `rows`, and what was summed before is made relative to them; the output
/// must be multiplied by `correction`. `subtract` is what scaled scores lose; scores may lose it here.
template <int kFloats>
__device__ __forceinline__ void take_maxima(float (&scores)[kFloats], LazyRows& rows, float (&correction)[2],
                                            float (&subtract)[2], float scale_log2) {
  float top[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float a = scores[2 * r], b = scores[2 * r + 1];
#pragma unroll
    for (int i = 4 + 2 * r; i < kFloats; i += 4) {
      a = fmaxf(a, scores[i]);
      b = fmaxf(b, scores[i + 1]);
    }
    top[r] = fmaxf(fmaxf(a, b), rows.max[r]);
  }
  const auto size = [](float x) { return x == -INFINITY ? 0.0f : fabsf(x); };  // of a row without a key: 0
  const bool large = __any_sync(kWholeWarp, fmaxf(size(top[0]), size(top[1])) * scale_log2 > kLargeScore);
  float base[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float maximum = quad_max(top[r]);
    if (maximum < 0 && maximum * scale_log2 >= -kLazyLimit) maximum = 0;
    base[r] = maximum == -INFINITY ? 0.0f : maximum;
    subtract[r] = base[r] * scale_log2;
    correction[r] = exp2_approx((rows.max[r] - base[r]) * scale_log2);
    rows.sum[r] *= correction[r];
    rows.max[r] = maximum;
    rows.limit[r] = large || maximum < 0 ? -1 : __float_as_int(maximum + kLazyLimit / scale_log2);
  }
  if (large) {
#pragma unroll
    for (int i = 0; i < kFloats; ++i) scores[i] -= base[row_of(i)];
    subtract[0] = subtract[1] = 0;
  }
}

/// Turns scores into probabilities, in place, and adds them to the rows' sums.
template <int kFloats>
__device__ __forceinline__ void exponentiate(float (&scores)[kFloats], Rows& rows, const float (&subtract)[2],
                                             float scale_log2) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float a = rows.sum[r], b = 0;
#pragma unroll
    for (int i = 2 * r; i < kFloats; i += 4) {
      a += scores[i] = exp2_approx(scores[i] * scale_log2 - subtract[r]);
      b += scores[i + 1] = exp2_approx(scores[i + 1] * scale_log2 - subtract[r]);
    }
    rows.sum[r] = a + b;
  }
}

/// Turns the first scores into probabilities, relative to their maxima, and takes them into `rows`.
template <int kFloats>
__device__ __forceinline__ void first_softmax(float (&scores)[kFloats], LazyRows& rows, float scale_log2) {
  float subtract[2], correction[2];  // nothing was summed before
  take_maxima(scores, rows, correction, subtract, scale_log2);
  exponentiate(scores, rows, subtract, scale_log2);
}

/// The same of later scores, relative to the old maxima while no score exceeds one by more than kLazyLimit.
/// Returns whether the output must be multiplied by `correction`.
template <int kFloats>
__device__ __forceinline__ bool softmax_lazily(float (&scores)[kFloats], LazyRows& rows,
                                               float (&correction)[2], float scale_log2) {
  bool exceeds = false;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    int a = 0, b = 0;
#pragma unroll
    for (int i = 2 * r; i < kFloats; i += 8) {
      a = max3(a, __float_as_int(scores[i]), __float_as_int(scores[i + 1]));
      b = max3(b, __float_as_int(scores[i + 4]), __float_as_int(scores[i + 5]));
    }
    exceeds |= max(a, b) > rows.limit[r];
  }
  const bool rescale = __any_sync(kWholeWarp, exceeds);
  float subtract[2] = {rows.max[0] * scale_log2, rows.max[1] * scale_log2};
  if (rescale) take_maxima(scores, rows, correction, subtract, scale_log2);
  exponentiate(scores, rows, subtract, scale_log2);
  return rescale;
}

}  // namespace flashbook::hopper
