#include "common/simulator/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "common/numeric/widest_vectors.h"
#include "common/simulator/element_value.h"
#include "common/simulator/launch.h"

namespace flashbook::sim {
namespace {

// Plain float32.

/// Keeps kLanes rows and 8 columns in the host's registers while k advances, in vectors of kLanes floats.
/// (Compilers vectorise such loops only sometimes. They keep the sums in registers if the loops over the sums
/// are unrolled; loading a vector in two halves would stall.)
template <int kLanes>
[[gnu::always_inline]] inline void multiply_in_blocks(int rows, int columns, int inner, const float* a,
                                                      const float* b, float* d) {
  using Floats = typename VectorUnit<kLanes, 16>::Types::Floats;
  using Anywhere [[gnu::aligned(4), gnu::may_alias]] = Floats;
  constexpr int kRows = kLanes, kVectors = 8 / kLanes;
  for (int m = 0; m < rows; m += kRows) {
    for (int n = 0; n < columns; n += kVectors * kLanes) {
      Floats sums[kRows][kVectors], right[kVectors];
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; ++j)
          sums[i][j] = *reinterpret_cast<const Anywhere*>(d + (m + i) * columns + n + j * kLanes);
      for (int k = 0; k < inner; ++k) {
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; ++j)
          right[j] = *reinterpret_cast<const Anywhere*>(b + k * columns + n + j * kLanes);
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
          const float left = a[(m + i) * inner + k];
#pragma GCC unroll 2
          for (int j = 0; j < kVectors; ++j) sums[i][j] += left * right[j];
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; ++j)
          *reinterpret_cast<Anywhere*>(d + (m + i) * columns + n + j * kLanes) = sums[i][j];
    }
  }
}

void multiply_plain(int rows, int columns, int inner, const float* a, const float* b, float* d) {
  if (rows % 8 != 0) return multiply_in_blocks<4>(rows, columns, inner, a, b, d);
  with_widest_vectors([&]<typename Unit>() __attribute__((always_inline)) {
    multiply_in_blocks<std::min(Unit::kLanes, 8)>(rows, columns, inner, a, b, d);
  });
}

// The arithmetic of an H200.

/// How the hardware adds products of one type.
struct Precision {
  int mantissa_bits;      ///< mantissa bits per element
  int smallest_exponent;  ///< smallest exponent of normal and subnormal elements
  int fraction_bits;      ///< number of fraction bits kept below the largest exponent
  int result_bits;        ///< number of fraction bits of the sum
};

constexpr Precision precision_of(DType type) {
  if (type == DType::f16) return {10, -14, 25, 23};
  if (type == DType::bf16) return {7, -126, 25, 23};
  return {3, -6, 13, 13};
}

constexpr int kFloatMantissaBits = 23, kFloatBias = 127, kSmallestExponent = -126;

/// A finite value as significand * 2^(exponent - mantissa bits). Products are exact, but a tensor core aligns
/// them by the sum of their factors' exponents, so this sum is the exponent here.
struct Term {
  int32_t significand, exponent;
};

/// Returns an element as a term, with the exponent of its encoding.
Term term_of(float value, Precision precision) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const int field = int(bits >> kFloatMantissaBits & 0xff);
  const uint32_t magnitude = bits & 0x7fff'ffff;
  if (magnitude == 0) return {0, kSmallestExponent};
  const uint32_t mantissa = bits & 0x7f'ffff;
  const uint32_t significand = field == 0 ? mantissa : mantissa | 1u << kFloatMantissaBits;
  const int own = std::max(field, 1) - kFloatBias;
  const int exponent = std::max(own, precision.smallest_exponent);
  // Exact: the bits shifted out are zero, since the element has no more bits.
  const auto kept = int32_t(significand >> (kFloatMantissaBits - precision.mantissa_bits + (exponent - own)));
  return {bits >> 31 ? -kept : kept, exponent};
}

/// Returns magnitude >> shift with the sign of `sign`, truncated towards zero.
int64_t cut_off(uint64_t magnitude, int shift, int64_t sign) {
  const auto kept = int64_t(shift < 64 ? magnitude >> shift : 0);
  return sign < 0 ? -kept : kept;
}

float exact_dot(Precision precision, int inner, const Term* x, const Term* y, float c) {
  constexpr Precision kFloat{kFloatMantissaBits, kSmallestExponent, 0, 0};
  const Term accumulator = term_of(c, kFloat);
  int largest = accumulator.exponent;
  for (int k = 0; k < inner; ++k) largest = std::max(largest, x[k].exponent + y[k].exponent);

  // Magnitudes start with more bits than the sum keeps, so they are only ever shifted right.
  const int raised = precision.fraction_bits + 2;
  int64_t sum = cut_off(uint64_t(std::abs(accumulator.significand)) << raised,
                        largest - accumulator.exponent + kFloatMantissaBits + 2, accumulator.significand);
  for (int k = 0; k < inner; ++k) {
    const int32_t product = x[k].significand * y[k].significand;
    sum += cut_off(uint64_t(std::abs(product)) << raised,
                   largest - x[k].exponent - y[k].exponent + 2 * precision.mantissa_bits + 2, product);
  }
  if (sum == 0) return 0;
  // Truncates at the result's last fraction bit or at the smallest subnormal, whichever is larger.
  const int scale = largest - precision.fraction_bits;
  const int top = 63 - std::countl_zero(uint64_t(std::abs(sum)));
  const int dropped = std::max({top - precision.result_bits, -149 - scale, 0});
  const int64_t kept = cut_off(uint64_t(std::abs(sum)), dropped, sum);
  return float(std::ldexp(double(kept), scale + dropped));
}

/// Returns a sum with infinite or NaN terms. Products cannot overflow, since they are in double precision.
float infinite_dot(int inner, const float* row, const float* column, int stride, float c) {
  constexpr uint32_t kNaN = 0x7fff'ffff;  // regardless of the operands' NaNs
  double sum = c;
  for (int k = 0; k < inner; ++k) sum += double(row[k]) * column[k * stride];
  return std::isnan(sum) ? std::bit_cast<float>(kNaN) : float(sum);
}

bool all_finite(const float* values, int count, int stride) {
  for (int i = 0; i < count; ++i)
    if (!std::isfinite(values[i * stride])) return false;
  return true;
}

void multiply_exact(DType type, int rows, int columns, int inner, const float* a, const float* b, float* d) {
  static thread_local Term x[kMaxInner], y[kMaxColumns * kMaxInner];
  static thread_local bool finite_column[kMaxColumns];
  const Precision precision = precision_of(type);
  for (int n = 0; n < columns; ++n) {
    finite_column[n] = all_finite(b + n, inner, columns);
    for (int k = 0; k < inner && finite_column[n]; ++k)
      y[n * inner + k] = term_of(b[k * columns + n], precision);
  }
  for (int m = 0; m < rows; ++m) {
    const float* row = a + m * inner;
    const bool finite_row = all_finite(row, inner, 1);
    for (int k = 0; k < inner && finite_row; ++k) x[k] = term_of(row[k], precision);
    for (int n = 0; n < columns; ++n) {
      float& sum = d[m * columns + n];
      sum = finite_row && finite_column[n] && std::isfinite(sum)
                ? exact_dot(precision, inner, x, y + n * inner, sum)
                : infinite_dot(inner, row, b + n, columns, sum);
    }
  }
}

template <DType kType>
void multiply_elements(const uint16_t (&a)[16][16], const uint16_t (&b)[16][8], float (&d)[16][8]) {
  float x[16][16], y[16][8];
  for (int m = 0; m < 16; ++m)
    for (int k = 0; k < 16; ++k) x[m][k] = value_of<kType>(a[m][k]);
  for (int k = 0; k < 16; ++k)
    for (int n = 0; n < 8; ++n) y[k][n] = value_of<kType>(b[k][n]);
  multiply_accumulate(kType, 16, 8, 16, x[0], y[0], d[0]);
}

}  // namespace

void multiply_accumulate(DType type, int rows, int columns, int inner, const float* a, const float* b,
                         float* d) {
  if (options().exact)
    multiply_exact(type, rows, columns, inner, a, b, d);
  else
    multiply_plain(rows, columns, inner, a, b, d);
}

void multiply_accumulate(DType type, const uint16_t (&a)[16][16], const uint16_t (&b)[16][8],
                         float (&d)[16][8]) {
  if (type == DType::f16)
    multiply_elements<DType::f16>(a, b, d);
  else
    multiply_elements<DType::bf16>(a, b, d);
}

}  // namespace flashbook::sim
