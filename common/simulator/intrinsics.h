/// \file
/// CUDA's intrinsics for bits, conversions, integer arithmetic and cached loads. Internal to cuda.h.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/simulator/clock.h"
#include "common/simulator/vector_types.h"
#include "common/simulator/warp.h"

namespace flashbook::sim {

/// Ends the launch with an Error that names the call.
[[noreturn]] void stop_kernel(const char* what, Location where);
/// Returns whether the address is in the calling block's shared memory.
bool is_shared(const void* address);

/// Converts a floating-point value that is an integer: NaN becomes 0, and the result is clamped.
template <typename Integer>
Integer saturated(double whole) {
  constexpr double kEnd = 2.0 * (std::numeric_limits<Integer>::max() / 2 + 1);
  if (whole != whole) return 0;
  if (whole >= kEnd) return std::numeric_limits<Integer>::max();
  if (whole < double(std::numeric_limits<Integer>::min())) return std::numeric_limits<Integer>::min();
  return static_cast<Integer>(whole);
}

/// Returns c plus the dot product of four pairs of bytes.
template <typename Byte, typename Sum>
Sum dot4(Sum a, Sum b, Sum c) {
  for (int shift = 0; shift < 32; shift += 8)
    c = Sum(unsigned(c) + unsigned(int(Byte(unsigned(a) >> shift)) * int(Byte(unsigned(b) >> shift))));
  return c;
}

}  // namespace flashbook::sim

#define FLASHBOOK_CONVERSIONS(from, name, Result)                                                           \
  inline Result __##from##2##name##_rn(from x) {                                                            \
    return flashbook::sim::saturated<Result>(std::nearbyint(x));                                            \
  }                                                                                                         \
  inline Result __##from##2##name##_rz(from x) { return flashbook::sim::saturated<Result>(std::trunc(x)); } \
  inline Result __##from##2##name##_ru(from x) { return flashbook::sim::saturated<Result>(std::ceil(x)); }  \
  inline Result __##from##2##name##_rd(from x) { return flashbook::sim::saturated<Result>(std::floor(x)); }
FLASHBOOK_CONVERSIONS(float, int, int)
FLASHBOOK_CONVERSIONS(float, uint, unsigned)
FLASHBOOK_CONVERSIONS(float, ll, long long)
FLASHBOOK_CONVERSIONS(float, ull, unsigned long long)
FLASHBOOK_CONVERSIONS(double, int, int)
FLASHBOOK_CONVERSIONS(double, uint, unsigned)
FLASHBOOK_CONVERSIONS(double, ll, long long)
FLASHBOOK_CONVERSIONS(double, ull, unsigned long long)
#undef FLASHBOOK_CONVERSIONS
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
inline float __ll2float_rn(long long x) { return float(x); }
inline float __ull2float_rn(unsigned long long x) { return float(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return double(x); }
inline float __double2float_rn(double x) { return float(x); }

inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline int __double2hiint(double x) { return int(std::bit_cast<uint64_t>(x) >> 32); }
inline int __double2loint(double x) { return int(std::bit_cast<uint64_t>(x)); }
inline double __hiloint2double(int high, int low) {
  return std::bit_cast<double>(uint64_t(unsigned(high)) << 32 | unsigned(low));
}

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(unsigned(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x ? std::countr_zero(unsigned(x)) + 1 : 0; }
inline int __ffsll(long long x) { return x ? std::countr_zero(static_cast<unsigned long long>(x)) + 1 : 0; }
inline unsigned __brev(unsigned x) {
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) result |= (x >> i & 1) << (31 - i);
  return result;
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(unsigned(x))) << 32 | __brev(unsigned(x >> 32));
}
/// Hex digit i of the selector selects byte i of the result; with bit 3 set, that byte's sign is replicated.
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const uint64_t both = uint64_t(high) << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned digit = selector >> 4 * i & 15, byte = unsigned(both >> 8 * (digit & 7)) & 0xff;
    result |= (digit & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte) << 8 * i;
  }
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned(((uint64_t(high) << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t(high) << 32 | low) >> (shift & 31));
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}
inline int __mulhi(int x, int y) { return int((int64_t(x) * y) >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) { return unsigned((uint64_t(x) * y) >> 32); }
__extension__ inline long long __mul64hi(long long x, long long y) {
  return static_cast<long long>((static_cast<__int128>(x) * y) >> 64);
}
__extension__ inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(x) * y) >> 64);
}
/// Returns the product of the low 24 bits of both arguments.
inline int __mul24(int x, int y) {
  return int(unsigned(int(unsigned(x) << 8) >> 8) * unsigned(int(unsigned(y) << 8) >> 8));
}
inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xff'ffff) * (y & 0xff'ffff); }
inline unsigned __sad(int x, int y, unsigned z) {
  return z + (x > y ? unsigned(x) - unsigned(y) : unsigned(y) - unsigned(x));
}
inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return z + (x > y ? x - y : y - x); }
inline int __hadd(int x, int y) { return int((int64_t(x) + y) >> 1); }
inline int __rhadd(int x, int y) { return int((int64_t(x) + y + 1) >> 1); }
inline unsigned __uhadd(unsigned x, unsigned y) { return unsigned((uint64_t(x) + y) >> 1); }
inline int __dp4a(int a, int b, int c) { return flashbook::sim::dot4<int8_t>(a, b, c); }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) { return flashbook::sim::dot4<uint8_t>(a, b, c); }

// Loads and stores with cache hints, which have no effect here.
#define FLASHBOOK_LOAD(name) \
  template <typename T>      \
  T name(const T* address) { \
    return *address;         \
  }
#define FLASHBOOK_STORE(name)                            \
  template <typename T>                                  \
  void name(T* address, std::type_identity_t<T> value) { \
    *address = value;                                    \
  }
FLASHBOOK_LOAD(__ldg)
FLASHBOOK_LOAD(__ldca)
FLASHBOOK_LOAD(__ldcg)
FLASHBOOK_LOAD(__ldcs)
FLASHBOOK_LOAD(__ldlu)
FLASHBOOK_STORE(__stwb)
FLASHBOOK_STORE(__stcg)
FLASHBOOK_STORE(__stcs)
FLASHBOOK_STORE(__stwt)
#undef FLASHBOOK_LOAD
#undef FLASHBOOK_STORE
template <typename T>
T __ldcv(const T* address) {
  return *const_cast<const volatile T*>(address);
}

inline unsigned __isGlobal(const void* address) { return flashbook::sim::is_global(address); }
inline unsigned __isShared(const void* address) { return flashbook::sim::is_shared(address); }
inline long long clock64() { return flashbook::sim::clock_ticks(); }
[[noreturn]] inline void __trap(flashbook::sim::Location where = flashbook::sim::Location::current()) {
  flashbook::sim::stop_kernel("__trap", where);
}
/// A GPU without a debugger attached stops the kernel as well.
[[noreturn]] inline void __brkpt(flashbook::sim::Location where = flashbook::sim::Location::current()) {
  flashbook::sim::stop_kernel("__brkpt", where);
}
