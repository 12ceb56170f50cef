//| # Softmax of a warpgroup's scores
//|
//| Each thread holds parts of two of the 64 rows, r and r + 8: every fourth pair of their columns. So the
//| four lanes of a *quad* hold a row, and two shuffles give all four its maximum. Float i of `scores` belongs
//| to row i / 2 % 2 of the two; the same holds for `output`.
//|
//| ![A warpgroup's 64 rows belong to four warps; four neighbouring lanes hold a
//| row](../../docs/figures/wgmma_fragments.svg)
#pragma once
#include "common/hopper/problem.h"
#include "common/ptx/math.h"

namespace flashbook::hopper {

/// Returns which of a thread's two rows float i of an accumulator belongs to.
__host__ __device__ constexpr int row_of(int i) { return i / 2 % 2; }

/// The state of a thread's two rows.
struct Rows {
  float max[2];  ///< maximum of the scores so far; with lazy rescaling, possibly an older maximum
  float sum[2];  ///< sum of this thread's own probabilities: the quad's four are added once, at the end

  __device__ __forceinline__ static Rows none() { return {{-INFINITY, -INFINITY}, {0.0f, 0.0f}}; }
};

//| Every softmax of the book uses `Rows`, in FP8 and decoding too. This one may be lazy (see below), and then
//| also keeps a limit.
/// The rows of this softmax. `kLazy_` means that maxima are updated lazily.
template <bool kLazy_>
struct SoftmaxRows : Rows {
  static constexpr bool kLazy = kLazy_;
  int limit[2];  ///< lazy rescaling: bits of the largest score for which `max` may stay; -1 if there is none

  __device__ __forceinline__ static SoftmaxRows none() { return {Rows::none(), {-1, -1}}; }
};
using LazyRows = SoftmaxRows<true>;

/// Returns the maximum over the four lanes of a quad, in each of them.
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kWholeWarp, x, 1));
  return fmaxf(x, __shfl_xor_sync(kWholeWarp, x, 2));
}

/// Returns the sum over the four lanes of a quad, in each of them.
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(kWholeWarp, x, 1);
  return x + __shfl_xor_sync(kWholeWarp, x, 2);
}

//| ## One tile of keys
//|
//| Scores become probabilities in place: 2^(c s - c max), with c = scale * log2(e): one multiply-add and one
//| `ex2` each. Sums under an older maximum are multiplied by `correction`, and so is the output, by the
//| caller, when its products are done.
//|
//| **A row that has seen no key** has the maximum -inf, and -inf - (-inf) is NaN, so such a row subtracts 0.
//|
//| **Large scores.** The multiply-add is exact except for its final rounding, and `c max`, which is rounded
//| earlier, is the same for all keys of a row: its error is a common factor of P, which the division cancels.
//| But the error grows with `c max`, by half a unit in its last place. From 2^31 on that is 2^7, and an
//| exponential may overflow. So where `c max` exceeds 2^12, the maximum is subtracted before scaling, at the
//| cost of one more addition per score. Below that, the error is at most 2^-13, less than half a unit of P in
//| f16. So a correction may be computed from the difference of two maxima, even if one was subtracted before
//| scaling and the other after it.

constexpr float kLargeScore = 0x1p12;  ///< from this c max on, the maximum is subtracted before scaling
constexpr float kLazyLimit = 8;        ///< log2 of the largest probability before maxima are updated

/// Updates `rows` with the maxima of scores, and makes earlier sums relative to them; the output must be
/// multiplied by `correction`. `subtract` must be subtracted from scaled scores; scores may be reduced here.
template <int kFloats, bool kLazy>
__device__ __forceinline__ void take_maxima(float (&scores)[kFloats], SoftmaxRows<kLazy>& rows,
                                            float (&correction)[2], float (&subtract)[2], float scale_log2) {
  //| A thread reduces its own scores of each row in two chains of `fmaxf`, so that one chain need not wait
  //| for the other. Two shuffles then give the quad's four lanes the maximum of the whole row. The warp also
  //| votes on whether any maximum is large. Each thread checks its own scores, so that the vote does not wait
  //| for the shuffles.
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
  const auto size = [](float x) { return x == -INFINITY ? 0.0f : fabsf(x); };  // 0 for a row without a key
  const bool large = __any_sync(kWholeWarp, fmaxf(size(top[0]), size(top[1])) * scale_log2 > kLargeScore);
  //| `base` is the value that the row subtracts, and the correction follows from the difference of two bases.
  //| A lazy maximum also sets a limit; a limit of -1 requests maxima in every tile.
  float base[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float maximum = quad_max(top[r]);
    base[r] = maximum == -INFINITY ? 0.0f : maximum;
    subtract[r] = base[r] * scale_log2;
    correction[r] = exp2_approx((rows.max[r] - base[r]) * scale_log2);
    rows.sum[r] *= correction[r];
    rows.max[r] = maximum;
    if constexpr (kLazy) {
      const float limit = maximum + kLazyLimit / scale_log2;
      rows.limit[r] = large || limit < 0 ? -1 : __float_as_int(limit);
    }
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
  //| `scores[i] * scale_log2 - subtract` is one multiply-add. Again there are two chains, here of additions.
  //| The sum covers only this thread's columns: the quad adds its four sums once, at the end.
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

/// Turns scores into probabilities relative to the maxima so far, and adds them to `rows`. The output must be
/// multiplied by `correction`. LazyRows use it only for the first tile, before softmax_lazily.
template <int kFloats, bool kLazy>
__device__ __forceinline__ void softmax(float (&scores)[kFloats], SoftmaxRows<kLazy>& rows,
                                        float (&correction)[2], float scale_log2) {
  float subtract[2];
  take_maxima(scores, rows, correction, subtract, scale_log2);
  exponentiate(scores, rows, subtract, scale_log2);
}

//| ## Lazily
//|
//| The maximum only prevents exponentials from overflowing, and any number near it suffices. So a row keeps
//| its old maximum until a score exceeds it by 8 log2 units, so that a probability would exceed $2^8 = 256$.
//| P may then be up to 256, which f16 and bf16 hold as precisely as 1, and sum and output share the factor.
//| After a few tiles hardly any row needs a correction, and a warp without one skips head_dim / 2
//| multiplications. One vote decides for the warp, since a branch that only some lanes take saves nothing.
//|
//| Then the maximum itself is not needed, only whether some score is above the limit. Each thread checks its
//| own scores, and the vote replaces the shuffles. It compares the *bits* of the scores as integers: floats
//| from 0 on are ordered like their bits, and negative floats have negative bits. The integer `max3` takes
//| two scores at a time; Hopper has none for floats. This works only if limits are not negative. A row whose
//| maximum is more than 8 units below 0 has no limit, and its warp finds the maxima in every tile.
//|
//| The maximum in use is a real score. So a query that sees a single key has exactly p = 1 for it, and its O
//| is that key's V, bit for bit. Any number nearby would suffice for the softmax, but not for this: P is
//| rounded for the product, its sum is not, and their quotient would miss V by a unit in the last place.

/// Turns scores into probabilities relative to the old maxima, as long as no score exceeds its maximum by
/// more than kLazyLimit. Returns whether the output must be multiplied by `correction`.
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

//| The caller does this when the product that adds to the output is complete. It costs kHeadDim / 2
//| multiplications per thread.
/// output *= correction, row by row.
template <int kFloats>
__device__ __forceinline__ void rescale_rows(float (&output)[kFloats], const float (&correction)[2]) {
#pragma unroll
  for (int i = 0; i < kFloats; ++i) output[i] *= correction[row_of(i)];
}

}  // namespace flashbook::hopper
