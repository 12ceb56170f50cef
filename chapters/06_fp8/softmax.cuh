//| # Softmax of a warpgroup's scores
//|
//| As in chapter 5, a thread has two of 64 rows, r and r + 8, and every fourth pair of their columns, so a
//| row is spread across the four lanes of a *quad* (`common/hopper/softmax.h`). `Rows::max` is that of the
//| scores times log2(e) and all scales. Three things are new.
//|
//| **Scales.** The tensor cores multiply encodings. A score is their sum of products times the scales of its
//| query and its key. Both are constant in a tile, so a single `factor` combines them with the softmax scale
//| and log2(e).
//|
//| **A range for P.** Probabilities are between 0 and 1, while e4m3 reaches from 2^-9 to 448. So a range of
//| 2^8.8 above 1 is unused, and everything below 2^-10 is lost. A factor of 2^kOffset on all of P is free,
//| since the row sum includes it too and the division removes it.
//|
//| | offset | smallest P that is kept | smallest with all 3 bits |
//| | --- | --- | --- |
//| | 0 | 2^-10 | 2^-6 |
//| | 6, and rescaling from 2^2 on | 2^-16 | 2^-12 |
//| | 8 | 2^-18 | 2^-14 |
//|
//| **The scale of V as a bias.** With block scales, V's scale changes from tile to tile, so the sums of
//| different tiles have different units. Rescaling the output for each tile would undo lazy rescaling.
//| Instead the scale s goes into P: 2^x * s is 2^(x + log2 s), so log2 s is added to the tile's scores, which
//| takes one addition per tile. The maximum includes it too, so no P overflows. Only in the row sum must it
//| be removed again, by one multiplication per tile. A tile of zeros has the smallest possible scale, so that
//| it never sets the maximum. With the scale 1 it would: next to tiles whose scale is near 2^-7, like that of
//| N(0, 1), all other P would be 2^7 times smaller.
//|
//| [The figure of scales](README.md#a-scale) shows where probabilities fall on e4m3's axis, without an offset
//| and with one.
#pragma once
#include "chapters/06_fp8/problem.cuh"
#include "common/hopper/softmax.h"

namespace flashbook::fp8 {

/// The product of two small scales may be 0, and 0 times the -inf of a masked key is NaN.
__device__ __forceinline__ float not_zero(float factor) { return fmaxf(factor, 0x1p-126f); }

/// How the scales of a tile of keys change its scores.
struct TileScale {
  float factor;   ///< turns a sum of products into an exponent of 2
  float bias;     ///< log2 of the values' scale, with block scales
  float inverse;  ///< 1 / the values' scale, with block scales
};

//| **Lazy rescaling** works as in chapter 4: every tile takes its maxima, but a row keeps its old one until
//| a score exceeds it by kLazyLimit log2 units. There P could grow to 2^8. Here it shares the range above 1
//| with the offset: offset and limit together stay below log2(448) = 8.8.

//| ## How precise an exponential must be
//|
//| P is rounded to three bits of mantissa, but `ex2` computes 22. The encoding of P in e4m3 is nearly a line
//| in x = log2 P: the bits of the exponent are above the mantissa, so each whole step of x is a step of 8,
//| and 2^0 is encoded as 56. Between whole steps the mantissa should grow as 2^f - 1, and the line makes it
//| grow as f, at most 0.69 of a unit too much:
//|
//| encoding of P = round(8 x + 56 - 0.45)
//|
//| This is Schraudolph's exponential (Neural Computation 11, 1999) at the precision of the format. With -0.45
//| the mean of (1 + f - 0.45 / 8) / 2^f over a step is 1, so sums are right on average. Line and rounding
//| together have an RMS error of 3.1 % of P, where rounding the exact P has 2.65 %. A multiply-add computes
//| 1/128 of the encoding and saturates, so negative values become 0. A second one moves the number into the
//| lowest bits of a float, where adding 1.5 times 2^23 rounds it to an integer. There is no `ex2` and no
//| conversion: `pack_low_bytes` (`tiles.cuh`) collects the lowest bytes of four floats. Below 2^-6, where
//| e4m3 has no more exponents, the line reaches 0 at 2^-7, and the smallest probabilities are lost.

/// log2 of a probability (offset included), times kLineSlope and plus line_start, is 1/128 of its encoding.
constexpr float kLineSlope = 8.0f / 128;
__device__ __forceinline__ float line_start(float subtract) { return (56 - 0.45f - 8 * subtract) / 128; }

/// Returns a float whose lowest byte is the encoding of a probability in e4m3, by the line. `score`: as
/// computed by the tensor cores.
__device__ __forceinline__ float encoded_by_line(float score, float factor, float start) {
  constexpr float kRounds = 12582912;  // 1.5 * 2^23: to a whole number, in the lowest bits
  return saturate(score * factor + start) * 128 + kRounds;
}

constexpr float kLazyLimit = 2;  ///< log2 of how far a probability may exceed 1 before rows are rescaled

/// Turns scores into probabilities times 2^kOffset, or with Traits::kLine into floats that contain their
/// encodings, and updates `rows`; the sums only without Traits::kSumsByProduct. Earlier sums must be
/// multiplied by `correction`. Returns whether any row of the warp needs that: always, unless kLazy.
template <bool kMasked, bool kLazy, typename Traits, int kFloats>
__device__ __forceinline__ bool softmax(float (&scores)[kFloats], Rows& rows, float (&correction)[2],
                                        const TileScale& scale) {
  constexpr int kOffset = Traits::kOffset;
  constexpr bool kBlockScales = Traits::kBlockScales;
  static_assert(kOffset + (kLazy ? kLazyLimit : 0) <= 8, "P must not exceed 448");
  //| As in chapter 5, in units of log2: the maximum of the tensor cores' scores, times the tile's factor,
  //| plus the bias of V's scale. The factor is positive, so the largest sum is the largest score.
  float new_max[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float a = scores[2 * r], b = scores[2 * r + 1];  // two chains: consecutive fmaxf are independent
#pragma unroll
    for (int i = 4 + 2 * r; i < kFloats; i += 4) {
      a = fmaxf(a, scores[i]);
      b = fmaxf(b, scores[i + 1]);
    }
    const float tile_max = quad_max(fmaxf(a, b)) * scale.factor;
    new_max[r] = fmaxf(rows.max[r], kBlockScales ? tile_max + scale.bias : tile_max);
  }

  //| The warp votes on rescaling, with a limit of 2 where chapter 5 has 8.
  bool rescale = true;
  if constexpr (kLazy) {
    const float rise = fmaxf(new_max[0] - rows.max[0], new_max[1] - rows.max[1]);
    rescale = __any_sync(kWholeWarp, rise > kLazyLimit);
    if (!rescale) new_max[0] = rows.max[0], new_max[1] = rows.max[1];
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    //| The offset and the bias enter where the maximum is subtracted, so each exponential is still one
    //| multiply-add and one `ex2`. With block scales the sum of the tile includes V's scale, which is removed
    //| before it is added to the row's sum.
    // A row that has seen no key has the maximum -inf, and -inf - (-inf) is NaN.
    const float safe_max = kMasked && new_max[r] == -INFINITY ? 0.0f : new_max[r];
    const float subtract = kBlockScales ? safe_max - scale.bias - kOffset : safe_max - kOffset;
    correction[r] = exp2_approx(rows.max[r] - safe_max);
    rows.max[r] = new_max[r];
    if constexpr (Traits::kLine) {
      static_assert(Traits::kSumsByProduct, "encodings cannot be added up");
      const float factor = scale.factor * kLineSlope, start = line_start(subtract);
#pragma unroll
      for (int i = 2 * r; i < kFloats; i += 4) {
        scores[i] = encoded_by_line(scores[i], factor, start);
        scores[i + 1] = encoded_by_line(scores[i + 1], factor, start);
      }
      continue;
    }
    //| Exact exponentials are summed as they are computed, in two chains, unless a product on the tensor
    //| cores sums them.
    float a = 0, b = 0;
    if constexpr (!kBlockScales) a = rows.sum[r] * correction[r];
#pragma unroll
    for (int i = 2 * r; i < kFloats; i += 4) {
      scores[i] = exp2_approx(scores[i] * scale.factor - subtract);
      scores[i + 1] = exp2_approx(scores[i + 1] * scale.factor - subtract);
      if constexpr (!Traits::kSumsByProduct) a += scores[i], b += scores[i + 1];
    }
    if constexpr (!Traits::kSumsByProduct)
      rows.sum[r] = kBlockScales ? rows.sum[r] * correction[r] + (a + b) * scale.inverse : a + b;
  }
  return rescale;
}

}  // namespace flashbook::fp8
