/// \file
/// The functions of <cuda_fp16.h> and <cuda_bf16.h>; the types are in common/numeric/float_formats.h.
/// Internal to cuda.h. Functions such as hexp round the exact result; a GPU may differ in the last bit.
#pragma once
#include <cmath>

#include "common/simulator/intrinsics.h"
#include "common/simulator/language.h"

namespace flashbook::sim {

template <typename T>
concept Half = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;

/// Two 16-bit floats in one register.
template <Half T>
struct alignas(4) HalfPair {
  T x, y;
  HalfPair() = default;
  constexpr HalfPair(T x, T y) : x(x), y(y) {}
  friend HalfPair operator+(HalfPair a, HalfPair b) { return {a.x + b.x, a.y + b.y}; }
  friend HalfPair operator-(HalfPair a, HalfPair b) { return {a.x - b.x, a.y - b.y}; }
  friend HalfPair operator*(HalfPair a, HalfPair b) { return {a.x * b.x, a.y * b.y}; }
  friend HalfPair operator/(HalfPair a, HalfPair b) { return {a.x / b.x, a.y / b.y}; }
  friend HalfPair operator-(HalfPair a) { return {-a.x, -a.y}; }
  friend HalfPair& operator+=(HalfPair& a, HalfPair b) { return a = a + b; }
  friend HalfPair& operator-=(HalfPair& a, HalfPair b) { return a = a - b; }
  friend HalfPair& operator*=(HalfPair& a, HalfPair b) { return a = a * b; }
  // Each comparison is true if it holds for both elements, so != is not the negation of ==.
  friend bool operator==(HalfPair a, HalfPair b) { return a.x == b.x && a.y == b.y; }
  friend bool operator!=(HalfPair a, HalfPair b) { return a.x != b.x && a.y != b.y; }
  friend bool operator<(HalfPair a, HalfPair b) { return a.x < b.x && a.y < b.y; }
  friend bool operator>(HalfPair a, HalfPair b) { return a.x > b.x && a.y > b.y; }
  friend bool operator<=(HalfPair a, HalfPair b) { return a.x <= b.x && a.y <= b.y; }
  friend bool operator>=(HalfPair a, HalfPair b) { return a.x >= b.x && a.y >= b.y; }
};

/// Returns a * b + c, rounded once: the product is exact, and the sum is first rounded to odd.
template <Half T>
T fused(T a, T b, T c) {
  const double product = double(float(a)) * double(float(b)), addend = float(c), sum = product + addend;
  const double from_addend = sum - product, lost = (product - (sum - from_addend)) + (addend - from_addend);
  if (!(lost != 0) || !std::isfinite(sum)) return sum;
  auto bits = std::bit_cast<uint64_t>(sum);
  bits -= (lost < 0) != (sum < 0);  // truncated
  return std::bit_cast<double>(bits | 1);
}

/// The result is NaN only if both arguments are; -0 is less than 0.
template <Half T>
T larger(T a, T b) {
  if (std::isnan(float(a)) || std::isnan(float(b))) return std::isnan(float(a)) ? b : a;
  return a == b ? (std::signbit(float(a)) ? b : a) : a < b ? b : a;
}

}  // namespace flashbook::sim

using half = __half;
using nv_bfloat16 = __nv_bfloat16;
using __half2 = flashbook::sim::HalfPair<__half>;
using __nv_bfloat162 = flashbook::sim::HalfPair<__nv_bfloat16>;
using half2 = __half2;
using nv_bfloat162 = __nv_bfloat162;

// Conversion functions.
inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline __half __double2half(double x) { return x; }
inline __half __int2half_rn(int x) { return x; }
inline __half __uint2half_rn(unsigned x) { return x; }
inline float __half2float(__half x) { return x; }
inline int __half2int_rn(__half x) { return __float2int_rn(x); }
inline int __half2int_rz(__half x) { return __float2int_rz(x); }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline short __half_as_short(__half x) { return short(x.bits); }
inline __half __ushort_as_half(unsigned short bits) { return __half::from_bits(bits); }
inline __half __short_as_half(short bits) { return __half::from_bits(uint16_t(bits)); }
inline __half2 __float2half2_rn(float x) { return {x, x}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline __half2 __float22half2_rn(float2 v) { return {v.x, v.y}; }
inline float2 __half22float2(__half2 v) { return {v.x, v.y}; }
inline __half2 __half2half2(__half x) { return {x, x}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half __low2half(__half2 v) { return v.x; }
inline __half __high2half(__half2 v) { return v.y; }
inline __half2 __low2half2(__half2 v) { return {v.x, v.x}; }
inline __half2 __high2half2(__half2 v) { return {v.y, v.y}; }
inline __half2 __lowhigh2highlow(__half2 v) { return {v.y, v.x}; }
inline __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
inline __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }

inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
inline __nv_bfloat16 __double2bfloat16(double x) { return x; }
inline __nv_bfloat16 __int2bfloat16_rn(int x) { return x; }
inline __nv_bfloat16 __uint2bfloat16_rn(unsigned x) { return x; }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline int __bfloat162int_rn(__nv_bfloat16 x) { return __float2int_rn(x); }
inline int __bfloat162int_rz(__nv_bfloat16 x) { return __float2int_rz(x); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline short __bfloat16_as_short(__nv_bfloat16 x) { return short(x.bits); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16::from_bits(bits); }
inline __nv_bfloat16 __short_as_bfloat16(short bits) { return __nv_bfloat16::from_bits(uint16_t(bits)); }
inline __nv_bfloat162 __float2bfloat162_rn(float x) { return {x, x}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {v.x, v.y}; }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {v.x, v.y}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 v) { return {v.x, v.x}; }
inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 v) { return {v.y, v.y}; }
inline __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 v) { return {v.y, v.x}; }

// Functions that both types support, for single values and for pairs.
template <flashbook::sim::Half T>
float __low2float(flashbook::sim::HalfPair<T> v) {
  return v.x;
}
template <flashbook::sim::Half T>
float __high2float(flashbook::sim::HalfPair<T> v) {
  return v.y;
}
#define FLASHBOOK_HALF1(one, pair, result)                          \
  template <flashbook::sim::Half T>                                 \
  T one(T a) {                                                      \
    return result;                                                  \
  }                                                                 \
  template <flashbook::sim::Half T>                                 \
  flashbook::sim::HalfPair<T> pair(flashbook::sim::HalfPair<T> v) { \
    return {one(v.x), one(v.y)};                                    \
  }
#define FLASHBOOK_HALF2(one, pair, result)                                                         \
  template <flashbook::sim::Half T>                                                                \
  T one(T a, std::type_identity_t<T> b) {                                                          \
    return result;                                                                                 \
  }                                                                                                \
  template <flashbook::sim::Half T>                                                                \
  flashbook::sim::HalfPair<T> pair(flashbook::sim::HalfPair<T> v, flashbook::sim::HalfPair<T> w) { \
    return {one(v.x, w.x), one(v.y, w.y)};                                                         \
  }
FLASHBOOK_HALF1(__hneg, __hneg2, -a)
FLASHBOOK_HALF1(__habs, __habs2, T::from_bits(a.bits & 0x7fff))
FLASHBOOK_HALF1(hexp, h2exp, std::exp(double(float(a))))
FLASHBOOK_HALF1(hexp2, h2exp2, std::exp2(double(float(a))))
FLASHBOOK_HALF1(hlog, h2log, std::log(double(float(a))))
FLASHBOOK_HALF1(hlog2, h2log2, std::log2(double(float(a))))
FLASHBOOK_HALF1(hsqrt, h2sqrt, std::sqrt(double(float(a))))
FLASHBOOK_HALF1(hrsqrt, h2rsqrt, 1 / std::sqrt(double(float(a))))
FLASHBOOK_HALF1(hrcp, h2rcp, 1 / double(float(a)))
FLASHBOOK_HALF1(hsin, h2sin, std::sin(double(float(a))))
FLASHBOOK_HALF1(hcos, h2cos, std::cos(double(float(a))))
FLASHBOOK_HALF1(hfloor, h2floor, std::floor(float(a)))
FLASHBOOK_HALF1(hceil, h2ceil, std::ceil(float(a)))
FLASHBOOK_HALF1(hrint, h2rint, std::nearbyint(float(a)))
FLASHBOOK_HALF2(__hadd, __hadd2, a + b)
FLASHBOOK_HALF2(__hsub, __hsub2, a - b)
FLASHBOOK_HALF2(__hmul, __hmul2, a* b)
FLASHBOOK_HALF2(__hdiv, __h2div, a / b)
FLASHBOOK_HALF2(__hmax, __hmax2, flashbook::sim::larger(a, b))
FLASHBOOK_HALF2(__hmin, __hmin2, -flashbook::sim::larger(-a, -b))
#undef FLASHBOOK_HALF1
#undef FLASHBOOK_HALF2
template <flashbook::sim::Half T>
T __hfma(T a, std::type_identity_t<T> b, std::type_identity_t<T> c) {
  return flashbook::sim::fused(a, T(b), T(c));
}
template <flashbook::sim::Half T>
flashbook::sim::HalfPair<T> __hfma2(flashbook::sim::HalfPair<T> a, flashbook::sim::HalfPair<T> b,
                                    flashbook::sim::HalfPair<T> c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
/// Comparisons of single values; of pairs, which return 1 or 0 for each element; and of pairs, which return
/// whether the comparison holds for both elements.
#define FLASHBOOK_HALF_TEST(one, pair, both, result)                                               \
  template <flashbook::sim::Half T>                                                                \
  bool one(T a, std::type_identity_t<T> b) {                                                       \
    return result;                                                                                 \
  }                                                                                                \
  template <flashbook::sim::Half T>                                                                \
  flashbook::sim::HalfPair<T> pair(flashbook::sim::HalfPair<T> v, flashbook::sim::HalfPair<T> w) { \
    return {T(one(v.x, w.x)), T(one(v.y, w.y))};                                                   \
  }                                                                                                \
  template <flashbook::sim::Half T>                                                                \
  bool both(flashbook::sim::HalfPair<T> v, flashbook::sim::HalfPair<T> w) {                        \
    return one(v.x, w.x) && one(v.y, w.y);                                                         \
  }
FLASHBOOK_HALF_TEST(__heq, __heq2, __hbeq2, a == b)
FLASHBOOK_HALF_TEST(__hne, __hne2, __hbne2, float(a) < float(b) || float(a) > float(b))  // false for NaN
FLASHBOOK_HALF_TEST(__hlt, __hlt2, __hblt2, a < b)
FLASHBOOK_HALF_TEST(__hle, __hle2, __hble2, a <= b)
FLASHBOOK_HALF_TEST(__hgt, __hgt2, __hbgt2, a > b)
FLASHBOOK_HALF_TEST(__hge, __hge2, __hbge2, a >= b)
#undef FLASHBOOK_HALF_TEST
template <flashbook::sim::Half T>
bool __hisnan(T a) {
  return std::isnan(float(a));
}
template <flashbook::sim::Half T>
int __hisinf(T a) {
  return std::isinf(float(a)) ? (a < T(0) ? -1 : 1) : 0;
}

template <flashbook::sim::Half T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return flashbook::sim::atomic_update(address, [value](T old) { return old + value; });
}
/// Each of the two additions is atomic by itself.
template <flashbook::sim::Half T>
flashbook::sim::HalfPair<T> atomicAdd(flashbook::sim::HalfPair<T>* address,
                                      std::type_identity_t<flashbook::sim::HalfPair<T>> value) {
  return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y)};
}
