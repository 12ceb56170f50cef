/// \file
/// The mathematical functions of CUDA that attention needs. The host provides fmaxf, exp2f and similar
/// functions.
///
/// The fast functions (__expf, __logf, __fdividef) are accurate to the last bits here and approximate on a
/// GPU: results agree within the checker's bounds, not bit for bit.
#pragma once
#include <math.h>  // declares isnan and the like without std

#include <algorithm>
#include <bit>
#include <cmath>

namespace flashbook::sim {

/// Rounds to the nearest float with 11 significant bits; NaN and infinities are unchanged.
inline float rounded_to_11_bits(float x) {
  const auto bits = std::bit_cast<unsigned>(x);
  constexpr unsigned kDropped = 13, kExponent = 0x7f80'0000;
  if ((bits & kExponent) == kExponent) return x;
  return std::bit_cast<float>((bits + (1u << (kDropped - 1))) & ~((1u << kDropped) - 1));
}

}  // namespace flashbook::sim

using std::max;
using std::min;
// CUDA's overloads: mixed signed and unsigned arguments compare as unsigned, and a number wins over a NaN.
#define FLASHBOOK_MIN_MAX(A, B, Result)                             \
  constexpr Result max(A a, B b) { return std::max<Result>(a, b); } \
  constexpr Result min(A a, B b) { return std::min<Result>(a, b); }
#define FLASHBOOK_MIN_MAX_INTEGERS(Signed, Unsigned) \
  FLASHBOOK_MIN_MAX(Signed, Signed, Signed)          \
  FLASHBOOK_MIN_MAX(Unsigned, Unsigned, Unsigned)    \
  FLASHBOOK_MIN_MAX(Signed, Unsigned, Unsigned)      \
  FLASHBOOK_MIN_MAX(Unsigned, Signed, Unsigned)
FLASHBOOK_MIN_MAX_INTEGERS(int, unsigned)
FLASHBOOK_MIN_MAX_INTEGERS(long, unsigned long)
FLASHBOOK_MIN_MAX_INTEGERS(long long, unsigned long long)
#undef FLASHBOOK_MIN_MAX_INTEGERS
#undef FLASHBOOK_MIN_MAX
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double max(double a, float b) { return fmax(a, b); }
inline double min(double a, float b) { return fmin(a, b); }

// glibc declares some of these names as noexcept and extern "C"; the definitions must match.
extern "C" {
inline float __expf(float x) noexcept { return std::exp(x); }
inline float __logf(float x) noexcept { return std::log(x); }
inline float __log2f(float x) noexcept { return std::log2(x); }
inline float __powf(float x, float y) noexcept { return std::pow(x, y); }
inline float __log10f(float x) noexcept { return std::log10(x); }
inline float __sinf(float x) noexcept { return std::sin(x); }
inline float __cosf(float x) noexcept { return std::cos(x); }
inline float __tanf(float x) noexcept { return std::tan(x); }
inline float __exp10f(float x) noexcept { return float(std::pow(10.0, x)); }
}
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frsqrt_rn(float x) { return float(1 / std::sqrt(double(x))); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __dsqrt_rn(double x) { return std::sqrt(x); }
inline double __fma_rn(double x, double y, double z) { return std::fma(x, y, z); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float fdividef(float x, float y) { return x / y; }
/// Clamps to [0, 1]; NaN becomes 0.
inline float __saturatef(float x) { return x > 0 ? std::min(x, 1.0f) : 0.0f; }
inline float __tanhf(float x) { return flashbook::sim::rounded_to_11_bits(std::tanh(x)); }
inline float normcdff(float x) { return 0.5f * std::erfc(-x * 0.70710678f); }
inline float erfcxf(float x) { return float(std::exp(double(x) * x) * std::erfc(double(x))); }
inline void __sincosf(float x, float* sine, float* cosine) {
  *sine = std::sin(x);
  *cosine = std::cos(x);
}
