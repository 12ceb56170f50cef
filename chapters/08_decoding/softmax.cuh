//| # Softmax, and a row's result
//|
//| Chapter 5's softmax for a warp's 16 rows in the layout of the tensor cores: each thread has two rows, r
//| and r + 8, and a row is spread over the four lanes of a quad. `mma.sync` and `wgmma` share this layout, so
//| all steps share this file.
//|
//| ![Which lane holds which elements of the results of mma.sync](../../docs/figures/mma_fragments.svg)
#pragma once
#include "chapters/08_decoding/problem.cuh"
#include "common/hopper/epilogue.h"

namespace flashbook::decoding {

/// Turns scores into probabilities and adds them to `rows`. Earlier sums must be multiplied by `correction`.
/// A row that has seen no key has the maximum -inf. `kLazy`: if a maximum has grown by a factor of less than
/// 2^8, the old maximum and the sums are kept.
template <bool kLazy = false, int kFloats>
__device__ __forceinline__ void online_softmax(float (&scores)[kFloats], Rows& rows, float (&correction)[2],
                                               float scale_log2) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float new_max = rows.max[r];
#pragma unroll
    for (int i = 2 * r; i < kFloats; i += 4) new_max = fmaxf(new_max, fmaxf(scores[i], scores[i + 1]));
    new_max = quad_max(new_max);
    if (kLazy && (new_max - rows.max[r]) * scale_log2 <= 8) new_max = rows.max[r];
    //| A tile may hide all its keys from a row, and a sequence may be empty. Since -inf - (-inf) is NaN, such
    //| a row subtracts 0, and its exponentials are 2^-inf = 0.
    //|
    //| **A correction of exactly 1.** If the maximum does not change, the correction must be exactly 1. It
    //| is, because the difference is taken *before* it is scaled. In the other order, max * scale_log2 -
    //| subtract becomes one multiply-add, whose product is not rounded as `subtract` is. What remains is the
    //| rounding error of `subtract`, up to 2^-21 for scaled maxima between 8 and 16: a factor of 1 + 3e-7,
    //| the same every time. Over the 7813 tiles of a million keys, the first tile would then weigh 1.003
    //| times as much as the last, and the log-sum-exp would be off by 1e-3. Random rounding errors of sums
    //| are harmless in comparison: n terms err by about 2^-25 sqrt(n), which is 2e-5 for the 250,000 that a
    //| thread adds up.
    const float base = new_max == -INFINITY ? 0.0f : new_max;
    const float subtract = base * scale_log2;
    correction[r] = exp2_approx((rows.max[r] - base) * scale_log2);
    rows.max[r] = new_max;
    rows.sum[r] *= correction[r];
#pragma unroll
    for (int i = 2 * r; i < kFloats; i += 4) {
      rows.sum[r] += scores[i] = exp2_approx(scores[i] * scale_log2 - subtract);
      rows.sum[r] += scores[i + 1] = exp2_approx(scores[i + 1] * scale_log2 - subtract);
    }
  }
}

//| Chapter 5's mask gets a row's last key from the problem. Here the rows of a tile may belong to several
//| heads, so their last keys are computed once, before the first tile.
/// Scores of keys that a row does not see become -inf. `last[r]` is the last key that the thread's row r
/// sees, `first_key` the key of its scores' first column.
template <int kFloats>
__device__ __forceinline__ void mask(float (&scores)[kFloats], const int (&last)[2], int first_key) {
  const int thread_key = first_key + 2 * int(threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < kFloats; ++i)
    if (thread_key + i / 4 * 8 + i % 2 > last[row_of(i)]) scores[i] = -INFINITY;
}

//| The log-sum-exp is all that a later merge needs to know about a row's softmax (`merge.cuh`). A row that
//| saw no key has O = 0 and a log-sum-exp of -inf.
/// Divides the output by its rows' sums and returns their natural log-sum-exp. Adds up the quad's sums.
template <int kFloats>
__device__ __forceinline__ void finish_rows(float (&output)[kFloats], const Rows& rows, float (&lse)[2],
                                            float scale_log2) {
  float inverse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = quad_sum(rows.sum[r]);
    inverse[r] = sum > 0 ? 1 / sum : 0;
    lse[r] = log_sum_exp(rows.max[r] * scale_log2, sum);
  }
  rescale_rows(output, inverse);
}

}  // namespace flashbook::decoding
