//| # A warp's softmax
//|
//| This file has the work between a warp's two products, in registers: the mask, the maxima, the rescaling of
//| $O$ where a maximum rises too far, and the exponentials. Steps 1 to 3 use the mask, the maxima and the
//| first FlashAttention's softmax; steps 4 to 6 use the parts after it.
//|
//| ![Online softmax of the scores 2, 5, 3: when the maximum rises, one factor repairs the
//| sum](../../docs/figures/online_softmax.svg)
#pragma once
#include "chapters/04_flash_attention_2/warp_tile.cuh"
#include "common/ptx/math.h"

namespace flashbook::fa2 {

constexpr float kSlack = 8;  // log2 of what a probability may reach before O is rescaled

//| ## The state of a row
//|
//| The state is two numbers. The maximum is equal in the four lanes of a row. The sum is *each lane's own
//| part*: adding up the four parts in every tile would cost two shuffles per row, and the total is not needed
//| before the end.

/// Maximum and sum of a lane's rows. The maximum is taken before scores are scaled; the sum covers only
/// the lane's own columns.
template <int kRowBlocks>
struct RowState {
  float max[kRowBlocks][2], sum[kRowBlocks][2];
  bool large;  // some maximum of the warp, times the scale, exceeds 2^12 in magnitude (see below)
};

/// Resets the state to one that has seen no key.
template <int kRowBlocks>
__device__ __forceinline__ void clear(RowState<kRowBlocks>& rows) {
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) rows.max[r][half] = -INFINITY, rows.sum[r][half] = 0;
  rows.large = false;
}

//| ## Mask and maxima
//|
//| A masked score becomes $-\infty$, so its exponential is 0. The number of keys that a row sees is computed
//| once for each of the lane's rows. After that, masking is one comparison per score, with a number that the
//| compiler knows except for the lane's offset.
/// Scores of keys that a row does not see become -inf. `first_query` is the warp's first row, `first_key` its
/// first key.
template <int kRowBlocks, int kKeyBlocks>
__device__ __forceinline__ void mask(Blocks<kRowBlocks, kKeyBlocks>& scores, const Problem& problem,
                                     int first_query, int first_key) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int visible = problem.visible_keys(first_query + r * 16 + half * 8 + lane / 4) - first_key;
#pragma unroll
      for (int n = 0; n < kKeyBlocks; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (n * 8 + lane % 4 * 2 + i >= visible) scores[r][n][2 * half + i] = -INFINITY;
    }
}

//| Each lane takes the maximum of its own scores and the old maximum, then compares with the lane whose
//| number differs in bit 0, then with the one that differs in bit 1. Lanes 4 g to 4 g + 3 share a row, so
//| these two shuffles reach exactly the four lanes of the row, and all four end with the same value.
/// Computes the maxima of rows over old and new keys, in all four lanes of a row.
template <int kRowBlocks, int kKeyBlocks>
__device__ __forceinline__ void row_maxima(float (&maxima)[kRowBlocks][2],
                                           const Blocks<kRowBlocks, kKeyBlocks>& scores,
                                           const RowState<kRowBlocks>& rows) {
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = rows.max[r][half];
#pragma unroll
      for (int n = 0; n < kKeyBlocks; ++n)
        top = fmaxf(top, fmaxf(scores[r][n][2 * half], scores[r][n][2 * half + 1]));
      top = fmaxf(top, __shfl_xor_sync(kWarp, top, 1));
      maxima[r][half] = fmaxf(top, __shfl_xor_sync(kWarp, top, 2));
    }
}

/// Returns the sum of a lane's parts of a row, in all four lanes.
__device__ __forceinline__ float row_total(float part) {
  part += __shfl_xor_sync(kWarp, part, 1);
  return part + __shfl_xor_sync(kWarp, part, 2);
}

//| ## Steps 1 to 3: softmax as in the first FlashAttention
//|
//| Every score is scaled, every tile's sum is reduced, and O is normalised after every tile. Step 4 replaces
//| it by `row_maxima`, `rescale` and `exponentiate`.

/// Scores become probabilities of the keys so far; out is rescaled to them. Here the maxima are those of
/// scaled scores.
template <int kKeyBlocks, int kDimBlocks>
__device__ __forceinline__ void normalized_softmax(Blocks<1, kKeyBlocks>& scores, Blocks<1, kDimBlocks>& out,
                                                   RowState<1>& rows, float scale) {
#pragma unroll
  for (int n = 0; n < kKeyBlocks; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[0][n][i] *= scale;
  float maxima[1][2];
  row_maxima(maxima, scores, rows);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float base =
        maxima[0][half] == -INFINITY ? 0 : maxima[0][half];  // a row without a key keeps its zeros
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kKeyBlocks; ++n)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        scores[0][n][i] = __expf(scores[0][n][i] - base);
        sum += scores[0][n][i];
      }
    //| `before` is the old sum, relative to the new maximum. The new sum adds the tile to it. Then
    //| both the probabilities and the old $O$ are divided by the new sum, so that $O$ is right after *every*
    //| tile. Only the last one matters, and step 4 saves all of this.
    const float before = rows.sum[0][half] * __expf(rows.max[0][half] - base);
    rows.sum[0][half] = before + row_total(sum);
    rows.max[0][half] = maxima[0][half];
    const float inverse = rows.sum[0][half] > 0 ? 1 / rows.sum[0][half] : 0;
#pragma unroll
    for (int n = 0; n < kKeyBlocks; ++n)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) scores[0][n][i] *= inverse;
#pragma unroll
    for (int n = 0; n < kDimBlocks; ++n)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) out[0][n][i] *= before * inverse;
  }
}

//| ## Large scores, a rare branch
//|
//| [Below](#one-multiply-add-and-one-exp2) a score becomes $2^{cs - cm}$ by one multiply-add. It rounds once,
//| at its end, but $cm$ was rounded before. That error is the same for all keys of a row, so it is a factor
//| that the division cancels. But it grows with $cm$, as half a unit in the last place: from $2^{31}$ on that
//| is $2^7$, and a probability may overflow. So where $|cm|$ exceeds $2^{12}$, the maximum is subtracted from
//| the scores before scaling, which costs one more addition per score. Below that, the error is at most
//| $2^{-13}$, less than half a unit of a probability in f16. Therefore `rescale` may use the difference of
//| two maxima, whichever way each was subtracted.
//|
//| The whole warp takes the same branch, and hardly any warp ever does. If a kernel has a register to spare,
//| `rows.large` keeps the vote from one rise of a maximum to the next. A row without a key is not large.

constexpr float kLarge = 0x1p12;  // scaled maximum from which on it is subtracted before the scale

/// Returns whether some maximum of the warp's rows, times the scale, exceeds kLarge in magnitude.
template <int kRowBlocks>
__device__ __forceinline__ bool is_large(const RowState<kRowBlocks>& rows, float scale_log2e) {
  bool large = false;
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      large |= rows.max[r][half] != -INFINITY && fabsf(rows.max[r][half] * scale_log2e) > kLarge;
  return __any_sync(kWarp, large);
}

//| What is subtracted before the scale must not be subtracted again after it, so the offsets become 0.
/// Subtracts the maxima from the scores, before the scale; then the scaled scores need no offset.
template <int kRowBlocks, int kKeyBlocks>
__device__ __forceinline__ void subtract_before_scaling(float (&offsets)[kRowBlocks][2],
                                                        Blocks<kRowBlocks, kKeyBlocks>& scores,
                                                        const float (&maxima)[kRowBlocks][2]) {
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      offsets[r][half] = 0;
#pragma unroll
      for (int n = 0; n < kKeyBlocks; ++n)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) scores[r][n][i] -= maxima[r][half];
    }
}

//| ## The lazy maximum
//|
//| The textbook rescales $O$ whenever a maximum rises. Here an old maximum is kept while no new score exceeds
//| it by more than `kSlack` = 8 log2 units: it cancels in the quotient, and no probability is above $2^8$.
//| Note the unit: 8 is a difference of *exponents*, the factor is 256.
//|
//| The vote `__any_sync` makes the decision for the whole warp, so that no lane takes a branch alone.
/// Adopts `maxima` and rescales the running O and sums to match. Skips this if the maxima of all the warp's
/// rows rose so little that no probability can exceed 2^kSlack: the result is the same, because O and the sum
/// are relative to the same maximum. kMasked = false promises that every row has seen a key.
template <bool kMasked, int kRowBlocks, int kDimBlocks>
__device__ __forceinline__ void rescale(const float (&maxima)[kRowBlocks][2],
                                        Blocks<kRowBlocks, kDimBlocks>& out, RowState<kRowBlocks>& rows,
                                        float scale_log2e) {
  bool rises = false;
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half)  // a row without a key: -inf - -inf is NaN, which is not greater
      rises |= (maxima[r][half] - rows.max[r][half]) * scale_log2e > kSlack;
  if (!__any_sync(kWarp, rises)) return;
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      //| The correction is $2^{m_\text{old} - m_\text{new}}$, below 1. The lane's sum and its part of $O$ are
      //| made relative to the new maximum. In a row that has seen no key both maxima are $-\infty$, and their
      //| difference is NaN; there the factor is 1, since there is nothing to correct.
      float correction = exp2_approx((rows.max[r][half] - maxima[r][half]) * scale_log2e);
      if (kMasked && maxima[r][half] == -INFINITY) correction = 1;
      rows.max[r][half] = maxima[r][half];
      rows.sum[r][half] *= correction;
#pragma unroll
      for (int n = 0; n < kDimBlocks; ++n) {
        out[r][n][2 * half] *= correction;
        out[r][n][2 * half + 1] *= correction;
      }
    }
  rows.large = is_large(rows, scale_log2e);
}

//| ## One multiply-add and one exp2
//|
//| The scale, the base change and the subtraction are *one* multiply-add. The term $-cm$ is computed once per
//| row. Step 3 needs four operations here: scale, subtract, and two inside `__expf`.

/// What exponentiate adds to scaled scores: minus the scaled maximum in use. If that is large in some row of
/// the warp, it is 0, and the maxima are subtracted from the scores. kRemembered: `rows.large` has the vote;
/// else the warp votes again, since no register is free to keep it from tile to tile.
template <bool kMasked, bool kRemembered, int kRowBlocks, int kKeyBlocks>
__device__ __forceinline__ void subtract_maxima(float (&offsets)[kRowBlocks][2],
                                                Blocks<kRowBlocks, kKeyBlocks>& scores,
                                                const RowState<kRowBlocks>& rows, float scale_log2e) {
  float maxima[kRowBlocks][2];
  bool large = false;
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      maxima[r][half] = rows.max[r][half];
      if (kMasked && maxima[r][half] == -INFINITY)
        maxima[r][half] = 0;  // no key so far: exp2(-inf) is still 0
      offsets[r][half] = -maxima[r][half] * scale_log2e;
      large |= fabsf(offsets[r][half]) > kLarge;
    }
  if (kRemembered ? rows.large : __any_sync(kWarp, large)) subtract_before_scaling(offsets, scores, maxima);
}

//| Kernels that multiply one part of $P$ while they compute the next call this for a few key blocks at a
//| time.
/// Key blocks kFirst ... kFirst + kCount - 1 of the scores become probabilities, relative to the maximum in
/// use, and are added to `sums`. One multiply-add and one exp2 each.
template <int kFirst, int kCount, int kRowBlocks, int kKeyBlocks>
__device__ __forceinline__ void exponentiate(Blocks<kRowBlocks, kKeyBlocks>& scores,
                                             const float (&offsets)[kRowBlocks][2],
                                             float (&sums)[kRowBlocks][2], float scale_log2e) {
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = kFirst; n < kFirst + kCount; ++n)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[r][n][i] = exp2_approx(fmaf(scores[r][n][i], scale_log2e, offsets[r][half]));
          sums[r][half] += scores[r][n][i];
        }
}

//| ## The end
//|
//| Only now do the four lanes of a row add their parts of the sum: two shuffles per row, once in the kernel.
//| A row that saw no key has the sum 0, its $O$ is 0 by contract, and its log-sum-exp is $-\infty$.

/// Returns the natural log-sum-exp of a row; -inf if it saw no key.
__device__ __forceinline__ float log_sum_exp(float max, float sum, float scale) {
  return sum > 0 ? max * scale + logf(sum) : -INFINITY;
}

/// Divides a row of O by its sum; 0 if it saw no key.
template <int kDimBlocks>
__device__ __forceinline__ void normalize(float (&out)[kDimBlocks][4], int half, float sum) {
  const float inverse = sum > 0 ? 1 / sum : 0;
#pragma unroll
  for (int n = 0; n < kDimBlocks; ++n) {
    out[n][2 * half] *= inverse;
    out[n][2 * half + 1] *= inverse;
  }
}

}  // namespace flashbook::fa2
