/// \file
/// Small float formats computed from their definition: fields, ldexp, and midpoints in exact double
/// arithmetic. Shares no code with common/numeric/float_formats.h.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace flashbook::testing {

/// A format with a sign bit, then exponent, then mantissa.
struct FormatReference {
  int bits, mantissa_bits, bias;
  uint32_t largest;   ///< encoding of the largest finite value
  uint32_t overflow;  ///< encoding of larger values
  uint32_t nan;       ///< encoding of every NaN

  uint32_t sign() const { return 1u << (bits - 1); }

  /// Returns the value of an unsigned encoding, as if the format had no infinity and no NaN.
  double value(uint32_t magnitude) const {
    const int exponent = int(magnitude >> mantissa_bits);
    const uint32_t mantissa = magnitude & ((1u << mantissa_bits) - 1);
    if (exponent == 0) return std::ldexp(double(mantissa), 1 - bias - mantissa_bits);
    return std::ldexp(double(mantissa + (1u << mantissa_bits)), exponent - bias - mantissa_bits);
  }

  /// Returns, for every encoding from 0 to that of overflow, the bits of the smallest float that rounds to
  /// it.
  std::vector<uint32_t> first_floats() const {
    std::vector<uint32_t> first = {0};
    for (uint32_t upper = 1; upper <= largest + 1; ++upper) {
      const double midpoint = (value(upper - 1) + value(upper)) / 2;  // exact in float
      const bool tie_goes_up = upper % 2 == 0;
      first.push_back(std::bit_cast<uint32_t>(float(midpoint)) + (tie_goes_up ? 0 : 1));
    }
    return first;
  }

  /// Returns the encoding of the `index`-th entry of first_floats().
  uint32_t encoding(std::size_t index) const { return index <= largest ? uint32_t(index) : overflow; }
};

inline constexpr FormatReference kF16 = {16, 10, 15, 0x7bff, 0x7c00, 0x7fff};
inline constexpr FormatReference kBf16 = {16, 7, 127, 0x7f7f, 0x7f80, 0x7fff};
/// 480 would follow 448, but its encoding means NaN: larger values saturate.
inline constexpr FormatReference kE4m3 = {8, 3, 7, 0x7e, 0x7e, 0x7f};

inline constexpr uint32_t kFloatInfinity = 0x7f800000;
inline constexpr uint32_t kFloatSign = 0x80000000;

}  // namespace flashbook::testing
