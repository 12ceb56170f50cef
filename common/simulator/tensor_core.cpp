#include "common/simulator/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "common/numeric/float_formats.h"
#include "common/simulator/launch.h"

namespace flashbook::sim {
namespace {

constexpr int kRows = 16, kColumns = 8, kInner = 16;

/// The value behind 16 bits, as to_float has it but without a branch, since this is where a simulated kernel
/// of chapter 4 spends its time. A NaN may be another one.
template <DType kType>
float value_of(uint16_t bits) {
  if constexpr (kType == DType::bf16) return std::bit_cast<float>(uint32_t(bits) << 16);
  constexpr uint32_t kInfinity = 0x7c00, kFloatInfinity = 0x7f80'0000;
  // Exponent and mantissa at a float's place; the factor makes up for the bias, for subnormals too.
  const float magnitude = std::bit_cast<float>(uint32_t(bits & 0x7fff) << 13) * 0x1p112f;
  const uint32_t special = (bits & kInfinity) == kInfinity ? kFloatInfinity : 0;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | special | uint32_t(bits & 0x8000) << 16);
}

/// A finite float as significand * 2^(exponent - 23), where |significand| < 2^24. Products of 16-bit elements
/// are floats without error, but a tensor core aligns them by the sum of their factors' exponents, which is
/// what this exponent is.
struct Term {
  int64_t significand;
  int exponent;
};

constexpr int kSignificandBits = 23;
constexpr int kSmallestExponent = -126;

/// Of a format's value, which is normal or subnormal in that format: its exponent is that of its encoding.
Term term_of(float value, int smallest_exponent) {
  if (value == 0) return {0, kSmallestExponent};
  const int exponent = std::max(std::ilogb(value), smallest_exponent);
  return {int64_t(std::ldexp(value, kSignificandBits - exponent)), exponent};
}

/// significand * 2^shift, cut off towards zero.
int64_t shifted(int64_t significand, int shift) {
  if (shift >= 0) return significand << shift;
  if (shift <= -63) return 0;
  const int64_t magnitude = std::abs(significand) >> -shift;
  return significand < 0 ? -magnitude : magnitude;
}

/// Fraction bits that are kept below the largest exponent.
constexpr int kFractionBits = 25;

float exact_dot(DType type, const float (&a)[kInner], const float (&b)[kInner], float c) {
  const int smallest = type == DType::f16 ? -14 : kSmallestExponent;
  Term x[kInner], y[kInner];
  const Term accumulator = term_of(c, kSmallestExponent);
  int largest = accumulator.exponent;
  for (int k = 0; k < kInner; ++k) {
    x[k] = term_of(a[k], smallest);
    y[k] = term_of(b[k], smallest);
    largest = std::max(largest, x[k].exponent + y[k].exponent);
  }
  int64_t sum =
      shifted(accumulator.significand, accumulator.exponent - largest + kFractionBits - kSignificandBits);
  for (int k = 0; k < kInner; ++k)
    sum += shifted(x[k].significand * y[k].significand,
                   x[k].exponent + y[k].exponent - largest + kFractionBits - 2 * kSignificandBits);
  if (sum == 0) return 0;
  // What a float cannot hold is cut off: below its 24 bits, and below the smallest subnormal.
  const int scale = largest - kFractionBits;
  const int top = 63 - std::countl_zero(uint64_t(std::abs(sum)));
  const int dropped = std::max(top - kSignificandBits, -149 - scale);
  if (dropped > 0) sum = shifted(shifted(sum, -dropped), std::min(dropped, 62));
  return float(std::ldexp(double(sum), scale));
}

template <DType kType>
void multiply_accumulate(const uint16_t (&a)[16][16], const uint16_t (&b)[16][8], float (&d)[16][8]) {
  float x[kRows][kInner], y[kInner][kColumns];
  for (int m = 0; m < kRows; ++m)
    for (int k = 0; k < kInner; ++k) x[m][k] = value_of<kType>(a[m][k]);
  for (int k = 0; k < kInner; ++k)
    for (int n = 0; n < kColumns; ++n) y[k][n] = value_of<kType>(b[k][n]);

  const auto plain = [&](int m, int n) {
    float sum = d[m][n];
    for (int k = 0; k < kInner; ++k) sum += x[m][k] * y[k][n];
    return sum;
  };
  if (options().exact) {
    for (int n = 0; n < kColumns; ++n) {
      float column[kInner];
      for (int k = 0; k < kInner; ++k) column[k] = y[k][n];
      for (int m = 0; m < kRows; ++m) {
        // Infinity and NaN are what they are in any arithmetic.
        const float sum = plain(m, n);
        d[m][n] = std::isfinite(sum) ? exact_dot(kType, x[m], column, d[m][n]) : sum;
      }
    }
    return;
  }
  for (int m = 0; m < kRows; ++m)
    for (int k = 0; k < kInner; ++k)
      for (int n = 0; n < kColumns; ++n) d[m][n] += x[m][k] * y[k][n];
}

}  // namespace

void multiply_accumulate(DType type, const uint16_t (&a)[16][16], const uint16_t (&b)[16][8],
                         float (&d)[16][8]) {
  if (type == DType::f16)
    multiply_accumulate<DType::f16>(a, b, d);
  else
    multiply_accumulate<DType::bf16>(a, b, d);
}

}  // namespace flashbook::sim
