//| # Softmax, and what a row comes to
//|
//| Chapter 5's softmax of what a warp holds: 16 rows as tensor cores deal them out, two to a thread, r and
//| r + 8, a row in the four lanes of a quad. `mma.sync` and `wgmma` agree on that, so all steps share this
//| file.
//|
//| ![Which lane holds which elements of the results of mma.sync](../../docs/figures/mma_fragments.svg)
#pragma once
#include "chapters/08_decoding/problem.cuh"
#include "common/hopper/epilogue.h"

namespace flashbook::decoding {

/// Turns scores into probabilities and takes them into `rows`. What was summed before must be multiplied by
/// `correction`. A row may have seen no key yet: its maximum is -inf. `kLazy`: a maximum that has grown by a
/// factor of less than 2^8 stays as it is, and so does what was summed.
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
    //| A tile may hide all its keys from a row, and a sequence may be empty. -inf - -inf is no number, so
    //| such a row subtracts 0: its exponentials are 2^-inf = 0.
    //|
    //| **A correction of exactly 1.** Where the maximum stays as it is, the correction must be 1 to the last
    //| bit. It is, since the difference is taken *before* it is scaled. The other order, max * scale_log2 -
    //| subtract, becomes one multiply-add, whose product is not rounded as `subtract` is: what is left is the
    //| rounding error of `subtract`, up to 2^-21 for scaled maxima between 8 and 16. That is a factor of 1 +
    //| 3e-7, always the same, and a million keys are 7813 tiles: the first tile would weigh 1.003 times what
    //| the last does, and a log-sum-exp be off by 1e-3. Sums rounded at random are harmless beside it: n
    //| terms err by about 2^-25 sqrt(n), which is 2e-5 for the 250,000 that a thread adds up.
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

//| Chapter 5's mask asks a problem for the last key of a row. Here the rows of a tile may belong to several
//| heads, and their last keys are worked out once, before the first tile.
/// Scores of keys that a row does not see become -inf. `last[r]` is the last key that the thread's row r
/// sees, `first_key` the key of its scores' first column.
template <int kFloats>
__device__ __forceinline__ void mask(float (&scores)[kFloats], const int (&last)[2], int first_key) {
  const int thread_key = first_key + 2 * int(threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < kFloats; ++i)
    if (thread_key + i / 4 * 8 + i % 2 > last[row_of(i)]) scores[i] = -INFINITY;
}

//| The log-sum-exp is the row's whole memory of its softmax: with it, results over parts of the keys can be
//| merged later (`merge.cuh`). A row that saw nothing has O = 0 and -inf.
/// Divides the output by its rows' sums and gives their natural log-sum-exp. The quad's sums are added up.
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
