/// \file
/// CUDA's mathematical functions, as far as attention needs them. fmaxf, exp2f and the like are the host's
/// own.
///
/// The fast ones (__expf, __logf, __fdividef) are exact to the last bits here and approximate on a GPU:
/// results agree within the checker's bounds, not bit by bit.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>

namespace flashbook::sim {

/// The nearest float with 11 bits of mantissa, the leading one counted; NaN and infinities stay.
inline float rounded_to_11_bits(float x) {
  const auto bits = std::bit_cast<unsigned>(x);
  constexpr unsigned kDropped = 13, kExponent = 0x7f80'0000;
  if ((bits & kExponent) == kExponent) return x;
  return std::bit_cast<float>((bits + (1u << (kDropped - 1))) & ~((1u << kDropped) - 1));
}

}  // namespace flashbook::sim

using std::max;
using std::min;
// Of floats, CUDA's are fmaxf and fminf: the other one of two if one is NaN.
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }

// glibc declares some of these names for itself, noexcept and as C; the definitions must agree with that.
extern "C" {
inline float __expf(float x) noexcept { return std::exp(x); }
inline float __logf(float x) noexcept { return std::log(x); }
inline float __log2f(float x) noexcept { return std::log2(x); }
inline float __powf(float x, float y) noexcept { return std::pow(x, y); }
}
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }

inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(unsigned(x)); }
inline int __ffs(int x) { return x ? std::countr_zero(unsigned(x)) + 1 : 0; }

/// A load through the read-only cache.
template <typename T>
T __ldg(const T* address) {
  return *address;
}
