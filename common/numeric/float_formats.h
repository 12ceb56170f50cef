/// \file
/// The three small float formats on the host, bit for bit those of cuda_fp16.h, cuda_bf16.h and cuda_fp8.h.
///
///     format  sign  exponent  mantissa  largest       smallest > 0  infinity
///     f16     1     5         10        65504         2^-24         yes
///     bf16    1     8         7         3.39 * 10^38  2^-133        yes
///     e4m3    1     4         3         448           2^-9          no
///
/// Conversions round to nearest, ties to even. Values too large for e4m3 become 448. Every NaN becomes the
/// one with all bits set except for the sign. f16 and bf16 convert and compute like CUDA's __half and
/// __nv_bfloat16: each operation rounds its exact result once.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

#include "common/numeric/dtype.h"

namespace flashbook {

namespace detail {

/// Returns the number truncated to a float whose last bit is set if anything was lost. Rounding that float to
/// a format of at most 22 mantissa bits gives the same result as rounding the number.
template <typename Number>
constexpr float to_odd(Number value) {
  const float nearest = static_cast<float>(value);
  if (nearest == value || value != value) return nearest;
  const bool too_large = value < 0 ? nearest < value : nearest > value;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(nearest) - too_large) | 1);
}

/// A type that can represent every value of type Number.
template <typename Number>
using Exact = std::conditional_t<std::is_integral_v<Number> && sizeof(Number) == 8, long double, double>;

/// The operators of a 16-bit float. (Templates would not convert their arguments.)
template <typename T>
struct Operators {
  friend constexpr T operator+(T a, T b) { return double(float(a)) + double(float(b)); }
  friend constexpr T operator-(T a, T b) { return double(float(a)) - double(float(b)); }
  friend constexpr T operator*(T a, T b) { return double(float(a)) * double(float(b)); }
  friend constexpr T operator/(T a, T b) { return double(float(a)) / double(float(b)); }
  friend constexpr T& operator+=(T& a, T b) { return a = a + b; }
  friend constexpr T& operator-=(T& a, T b) { return a = a - b; }
  friend constexpr T& operator*=(T& a, T b) { return a = a * b; }
  friend constexpr T& operator/=(T& a, T b) { return a = a / b; }
  friend constexpr T operator+(T a) { return a; }
  friend constexpr T operator-(T a) { return T::from_bits(uint16_t(a.bits ^ 0x8000)); }
  friend constexpr bool operator==(T a, T b) { return float(a) == float(b); }
  friend constexpr bool operator!=(T a, T b) { return float(a) != float(b); }
  friend constexpr bool operator<(T a, T b) { return float(a) < float(b); }
  friend constexpr bool operator>(T a, T b) { return float(a) > float(b); }
  friend constexpr bool operator<=(T a, T b) { return float(a) <= float(b); }
  friend constexpr bool operator>=(T a, T b) { return float(a) >= float(b); }
};

}  // namespace detail

/// IEEE half precision.
struct f16 : detail::Operators<f16> {
  uint16_t bits;
  f16() = default;
  /// Rounds a number. (from_bits takes an encoding.)
  template <typename Number, typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
  constexpr f16(Number value);
  f16(uint16_t) = delete;  // ambiguous: a number or an encoding
  static constexpr f16 from_bits(uint16_t bits) {
    f16 result{};
    result.bits = bits;
    return result;
  }
  constexpr operator float() const;
};

/// bfloat16: the upper half of a float.
struct bf16 : detail::Operators<bf16> {
  uint16_t bits;
  bf16() = default;
  /// Rounds a number. (from_bits takes an encoding.)
  template <typename Number, typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
  constexpr bf16(Number value);
  bf16(uint16_t) = delete;  // ambiguous: a number or an encoding
  static constexpr bf16 from_bits(uint16_t bits) {
    bf16 result{};
    result.bits = bits;
    return result;
  }
  constexpr operator float() const;
};

/// The 8-bit format for forward passes, also called E4M3FN.
struct e4m3 {
  uint8_t bits;
};

namespace detail {

constexpr uint32_t kFloatInfinity = 0x7f80'0000;
constexpr uint32_t kFloatNaN = 0x7fff'ffff;
constexpr uint32_t kFloatSign = 0x8000'0000;
constexpr int kFloatMantissaBits = 23;
constexpr int kFloatBias = 127;

/// Returns 2^exponent, for exponents of normal floats.
constexpr float power_of_two(int exponent) {
  return std::bit_cast<float>(uint32_t(exponent + kFloatBias) << kFloatMantissaBits);
}

/// Adds a number to the bits of a float so that dropping the last `dropped` bits rounds to nearest even: just
/// under half of the last bit that is kept, plus one if that bit is odd. A carry into the exponent gives the
/// right result.
constexpr uint32_t before_dropping(int dropped, uint32_t bits) {
  return bits + ((1u << (dropped - 1)) - 1) + ((bits >> dropped) & 1);
}

/// Returns a finite float without its sign, in a format of fewer exponent and mantissa bits. A value beyond
/// the largest one of the format gives a result beyond the largest encoding.
template <int kMantissaBits, int kBias>
constexpr uint32_t encode_magnitude(uint32_t magnitude) {
  constexpr int kSmallestExponent = 1 - kBias;  // for normal values; subnormals share its spacing
  if (std::bit_cast<float>(magnitude) < power_of_two(kSmallestExponent)) {
    // This lets the adder round: floats just above this power of two have the same spacing as the format's
    // subnormals.
    constexpr float kSameSpacing = power_of_two(kSmallestExponent - kMantissaBits + kFloatMantissaBits);
    return std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + kSameSpacing) -
           std::bit_cast<uint32_t>(kSameSpacing);
  }
  constexpr int kDropped = kFloatMantissaBits - kMantissaBits;
  constexpr uint32_t kRebias = uint32_t(kFloatBias - kBias) << kFloatMantissaBits;
  return (before_dropping(kDropped, magnitude) - kRebias) >> kDropped;
}

/// Returns the float with this exponent and mantissa in such a format, for every encoding that is not
/// infinite or NaN.
template <int kMantissaBits, int kBias>
constexpr float decode_magnitude(uint32_t magnitude) {
  if (magnitude >> kMantissaBits == 0)  // zero or subnormal: a multiple of the smallest step
    return float(magnitude) * power_of_two(1 - kBias - kMantissaBits);
  constexpr uint32_t kRebias = uint32_t(kFloatBias - kBias) << kFloatMantissaBits;
  return std::bit_cast<float>((magnitude << (kFloatMantissaBits - kMantissaBits)) + kRebias);
}

constexpr float with_sign(bool negative, float magnitude) { return negative ? -magnitude : magnitude; }

}  // namespace detail

/// Rounds to f16; 65520 and above become infinite.
constexpr f16 to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & ~detail::kFloatSign;
  if (magnitude > detail::kFloatInfinity) return f16::from_bits(0x7fff);
  const uint32_t sign = bits >> 16 & 0x8000;
  // 65520 is halfway between the largest value and 65536, which would be the next one.
  if (value >= 65520.0f || value <= -65520.0f) return f16::from_bits(uint16_t(sign | 0x7c00));
  return f16::from_bits(uint16_t(sign | detail::encode_magnitude<10, 15>(magnitude)));
}

/// Rounds to bf16; values closer to 2^128 than to the largest value become infinite.
constexpr bf16 to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & ~detail::kFloatSign) > detail::kFloatInfinity) return bf16::from_bits(0x7fff);
  // bf16 has a float's exponent, so subnormals need no special treatment.
  return bf16::from_bits(uint16_t(detail::before_dropping(16, bits) >> 16));
}

/// Rounds to e4m3; values above 448, infinity included, become 448.
constexpr e4m3 to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & ~detail::kFloatSign;
  if (magnitude > detail::kFloatInfinity) return {0x7f};
  const uint32_t sign = bits >> 24 & 0x80;
  if (value >= 448.0f || value <= -448.0f) return {uint8_t(sign | 0x7e)};
  return {uint8_t(sign | detail::encode_magnitude<3, 7>(magnitude))};
}

/// Returns the value of the encoding; exact, since every value of the small formats is a float.
constexpr float to_float(f16 value) {
  const uint32_t magnitude = value.bits & 0x7fff;
  if (magnitude > 0x7c00) return std::bit_cast<float>(detail::kFloatNaN);
  const bool negative = value.bits & 0x8000;
  if (magnitude == 0x7c00) return detail::with_sign(negative, std::bit_cast<float>(detail::kFloatInfinity));
  return detail::with_sign(negative, detail::decode_magnitude<10, 15>(magnitude));
}

/// \copydoc to_float(f16)
constexpr float to_float(bf16 value) { return std::bit_cast<float>(uint32_t(value.bits) << 16); }

/// \copydoc to_float(f16)
constexpr float to_float(e4m3 value) {
  const uint32_t magnitude = value.bits & 0x7f;
  if (magnitude == 0x7f) return std::bit_cast<float>(detail::kFloatNaN);
  return detail::with_sign(value.bits & 0x80, detail::decode_magnitude<3, 7>(magnitude));
}

/// Returns a float unchanged, so that code for every type can call to_float.
constexpr float to_float(float value) { return value; }

template <typename Number, typename>
constexpr f16::f16(Number value) : f16(to_f16(detail::to_odd(static_cast<detail::Exact<Number>>(value)))) {}
template <typename Number, typename>
constexpr bf16::bf16(Number value)
    : bf16(to_bf16(detail::to_odd(static_cast<detail::Exact<Number>>(value)))) {}
constexpr f16::operator float() const { return to_float(*this); }
constexpr bf16::operator float() const { return to_float(*this); }

/// Returns the value rounded to T: float, f16, bf16 or e4m3.
template <typename T>
constexpr T from_float(float value) {
  if constexpr (std::is_same_v<T, f16>)
    return to_f16(value);
  else if constexpr (std::is_same_v<T, bf16>)
    return to_bf16(value);
  else if constexpr (std::is_same_v<T, e4m3>)
    return to_e4m3(value);
  else
    return static_cast<std::enable_if_t<std::is_same_v<T, float>, T>>(value);
}

/// Calls `body(T())` with the host type of `type`: the bridge from a type known at run time to a template.
template <typename Body>
decltype(auto) with_host_type(DType type, Body&& body) {
  if (type == DType::f16) return body(f16());
  if (type == DType::bf16) return body(bf16());
  if (type == DType::e4m3) return body(e4m3());
  return body(float());
}

}  // namespace flashbook
