//| # Softmax of what a warpgroup holds
//|
//| Each thread holds parts of two of the 64 rows, r and r + 8: every fourth pair of their columns. So a row
//| lies in the four lanes of a *quad*, and two shuffles make its maximum known to all four. Float i of `scores` belongs to
//| row i / 2 % 2 of the two; the same holds for `output`.
//|
//| ![A warpgroup's 64 rows belong to four warps; a row lies in four neighbouring lanes](../../docs/figures/wgmma_fragments.svg)
#pragma once
#include "chapters/05_flash_attention_3/problem.cuh"
#include "common/ptx/math.h"

namespace flashbook::flash3 {

/// Which of a thread's two rows float i of an accumulator belongs to.
__host__ __device__ constexpr int row_of(int i) { return i / 2 % 2; }

/// What a thread knows of its two rows.
struct Rows {
  float max[2];  ///< of the scores so far, or of those before it last mattered (lazy rescaling)
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

//| ## One tile of keys
//|
//| Scores become probabilities in place: 2^(c s - c max), with c = scale * log2(e): one multiply-add and one `ex2` each.
//| What was summed under an older maximum is multiplied by `correction`, the output too; the caller does that when its
//| products are done.
//|
//| **A row that has seen no key** has the maximum -inf, and -inf - -inf is no number. Only a mask can do that, so only
//| masked tiles ask.
//|
//| **Lazy rescaling.** The maximum is there so that no exponential overflows, and any number near it will do. With kLazy a
//| row keeps its old maximum until a score exceeds it by 2^8, that is until a probability would exceed 256. P may then be
//| up to 256, which f16 and bf16 hold as precisely as 1, and sum and output share the factor. After a few tiles hardly any
//| row needs a correction, and a warp without one skips head_dim / 2 multiplications. One vote decides for the warp, since
//| a branch that only some lanes take saves nothing.
//|
//| **Large scores.** The multiply-add is exact but for its last rounding, and `c max`, which is rounded before, is the same
//| for all keys of a row: its error is a common factor of P, which the division takes out. But the error grows with `c max`, by
//| half a unit in its last place. From 2^31 on that is 2^7, and an exponential may overflow. So where `c max` exceeds 2^12 the
//| maximum is subtracted from the scores first, which costs an addition more for each. Below, the error is at most 2^-13, less than half a
//| unit of P in f16: so a correction may take the difference of two maxima, whichever way either was subtracted.

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

//| The caller does this when the product that adds to the output is done. It is kHeadDim / 2 multiplications a thread.
/// output *= correction, row by row.
template <int kFloats>
__device__ __forceinline__ void rescale_rows(float (&output)[kFloats], const float (&correction)[2]) {
#pragma unroll
  for (int i = 0; i < kFloats; ++i) output[i] *= correction[row_of(i)];
}

}  // namespace flashbook::flash3
