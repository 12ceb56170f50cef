//| # A fast power of two
//|
//| $2^x$ for step 4, without branches, so that the compiler can compute it for a whole vector of scores.
//|
//| `std::exp` is one call per score, and without a vector library, a call cannot be vectorised. The softmax
//| needs less than `std::exp` offers: no exponent is above 0, and next to a weight of 1, a weight below
//| $2^{-126}$ may as well be 0.
#pragma once
#include <bit>
#include <cstdint>

namespace flashbook {

//| ## Two parts of an exponent
//|
//| Split the argument as Cody and Waite did: $2^x = 2^n \cdot 2^f$, where $n$ is the nearest whole number and
//| $-1/2 \le f \le 1/2$.
//|
//| The first factor needs no arithmetic. A float stores its exponent in bits 23 to 30, with 127 added, so
//| $2^n$ is the integer $(n + 127) \cdot 2^{23}$, reinterpreted as a float. In base 2, the split itself is
//| exact. That is why step 4 works in base 2 and folds the factor $\log_2 e$ into the softmax scale.
//|
//| Rounding takes a single addition. A float near $1.5 \cdot 2^{23}$ has no bits left for a fraction, so
//| adding this number rounds to a whole number, which is then in the low bits of the sum. The other bits are
//| those of $1.5 \cdot 2^{23}$. They need no mask, because the shift by 23 below moves all but the lowest
//| nine bits out of the word.
//|
//| The second factor is a polynomial of degree 6, fitted for the smallest relative error on $[-1/2, 1/2]$
//| with $c_0 = 1$ fixed, so that whole exponents give exact results. Its coefficients are rounded to float.
//| Its error is $3 \cdot 10^{-9}$, a twentieth of the spacing of floats.

/// The polynomial for 2^f, highest power first.
constexpr float kExp2Coefficients[] = {1.5326471e-4f, 1.3390806e-3f, 9.618506e-3f, 5.55036e-2f,
                                       2.4022648e-1f, 6.931472e-1f,  1.0f};
constexpr int kExp2Degree = 6;

/// 2^x for x <= 0. Relative error at most 9.1e-8 for every float in [-126, 0] (half a unit in the last place
/// is 6e-8); 0 for every x < -126 and for -inf.
inline float exp2_fast(float x) {
  constexpr float kRound = 0x1.8p23f;
  const float shifted = x + kRound;
  const float f = x - (shifted - kRound);
  float p = kExp2Coefficients[0];
  for (int i = 1; i <= kExp2Degree; ++i) p = p * f + kExp2Coefficients[i];  // Horner
  const float two_to_n = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 127) << 23);
  // Below -126 the exponent's bits have run out, and at -inf f is NaN. The result must be 0 there: the sign
  // bit of x + 126, spread over the word, clears all bits without a branch.
  const int32_t below = std::bit_cast<int32_t>(x + 126.0f) >> 31;
  return std::bit_cast<float>(std::bit_cast<int32_t>(two_to_n * p) & ~below);
}

}  // namespace flashbook
