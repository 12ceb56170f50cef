/// \file
/// Online softmax of what a warpgroup holds, one tile of keys at a time, for chapter 9. Rows and large scores
/// are those of chapters/05_flash_attention_3/softmax.cuh. Unlike there, every tile's maxima are taken, by
/// their bits where none is negative, and a row has no limit.
#pragma once
#include "common/hopper/rows.h"
#include "common/ptx/math.h"

namespace flashbook::hopper {

constexpr float kLazyLimit = 8;        ///< log2 of how far a probability may exceed 1
constexpr float kLargeScore = 0x1p12;  ///< c max, from where on the maximum is subtracted before the scale

/// The maxima of a thread's two rows, old and new scores, in all four lanes of the quad.
template <int kFloats>
__device__ __forceinline__ void row_maxima(float (&maxima)[2], const float (&scores)[kFloats],
                                           const Rows& rows) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float top = rows.max[r];
#pragma unroll
    for (int i = 2 * r; i < kFloats; i += 4) top = fmaxf(top, fmaxf(scores[i], scores[i + 1]));
    maxima[r] = quad_max(top);
  }
}

/// The same by their bits, two scores an instruction. A maximum below 0 comes out as some negative number.
template <int kFloats>
__device__ __forceinline__ void row_maxima_of_bits(int (&maxima)[2], const float (&scores)[kFloats],
                                                   const Rows& rows) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    int a = __float_as_int(rows.max[r]), b = a;
#pragma unroll
    for (int i = 2 * r; i < kFloats; i += 8) {
      a = max3(a, __float_as_int(scores[i]), __float_as_int(scores[i + 1]));
      b = max3(b, __float_as_int(scores[i + 4]), __float_as_int(scores[i + 5]));
    }
    a = max3(a, b, __shfl_xor_sync(kWholeWarp, max(a, b), 1));
    maxima[r] = max(a, __shfl_xor_sync(kWholeWarp, a, 2));
  }
}

/// Turns scores into probabilities and takes them into `rows`. What was summed before must be multiplied by
/// `correction`, if the result is true: some row of the warp needs that. Always, unless kLazy.
template <bool kLazy, int kFloats>
__device__ __forceinline__ bool softmax(float (&scores)[kFloats], Rows& rows, float (&correction)[2],
                                        float scale_log2) {
  int bits[2];
  row_maxima_of_bits(bits, scores, rows);
  float maxima[2] = {__int_as_float(bits[0]), __int_as_float(bits[1])}, subtract[2];
  bool usual = (bits[0] | bits[1]) >= 0 && fmaxf(maxima[0], maxima[1]) * scale_log2 <= kLargeScore;
  if constexpr (kLazy)
    usual = usual && fmaxf(maxima[0] - rows.max[0], maxima[1] - rows.max[1]) * scale_log2 <= kLazyLimit;
  usual = __all_sync(kWholeWarp, usual);
  bool rescale = !kLazy;
  if (usual) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if constexpr (!kLazy) {
        correction[r] = exp2_approx((rows.max[r] - maxima[r]) * scale_log2);
        rows.max[r] = maxima[r];
        rows.sum[r] *= correction[r];
      }
      subtract[r] = rows.max[r] * scale_log2;
    }
  } else {
    rescale = true;
    row_maxima(maxima, scores, rows);
    float base[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      base[r] = maxima[r] == -INFINITY ? 0.0f : maxima[r];
      correction[r] = exp2_approx((rows.max[r] - base[r]) * scale_log2);
      rows.max[r] = maxima[r];
      rows.sum[r] *= correction[r];
      subtract[r] = base[r] * scale_log2;
    }
    if (__any_sync(kWholeWarp, fmaxf(fabsf(subtract[0]), fabsf(subtract[1])) > kLargeScore)) {
#pragma unroll
      for (int i = 0; i < kFloats; ++i) scores[i] -= base[row_of(i)];
      subtract[0] = subtract[1] = 0;
    }
  }
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
  return rescale;
}

}  // namespace flashbook::hopper
