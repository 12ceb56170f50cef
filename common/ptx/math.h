/// \file
/// Arithmetic instructions that have no name in C++.
#pragma once
#include "common/device/kernel.h"

namespace flashbook {

/// Returns 2^x with one instruction of the special function unit. -inf gives 0, and NaN gives NaN. The error
/// is at most 2 units in the last place, and a subnormal argument or result becomes 0; the simulator is more
/// accurate and keeps subnormals. (PTX ISA, ex2.approx.ftz.f32)
__device__ __forceinline__ float exp2_approx(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

/// Clamps `x` to [0, 1]; NaN gives 0. It is free after a multiply-add. (PTX ISA, fma.rn.sat.f32)
__device__ __forceinline__ float saturate(float x) { return __saturatef(x); }

/// Returns tanh(x) with one instruction of the special function unit, accurate to 11 bits: the relative error
/// is at most 2^-10.98. A subnormal result is kept. The simulator is equally inaccurate, with different last
/// bits. (PTX ISA, tanh.approx.f32)
__device__ __forceinline__ float tanh_approx(float x) {
#ifdef __CUDACC__
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return sim::rounded_to_11_bits(std::tanh(x));
#endif
}

/// Returns `x` with its origin hidden from the compiler: values derived from it are recomputed at each use,
/// where the compiler would otherwise compute them once and keep them in registers.
__device__ __forceinline__ unsigned hide_origin(unsigned x) {
#ifdef __CUDACC__
  asm volatile("" : "+r"(x));
#endif
  return x;
}

/// Returns the largest of three integers, one instruction from sm_90 on (CUDA's DPX functions).
__device__ __forceinline__ int max3(int a, int b, int c) {
#ifdef __CUDACC__
  return __vimax3_s32(a, b, c);
#else
  return std::max({a, b, c});
#endif
}

/// Returns four of the eight bytes of two registers: digit i of the selector, counted from the right, selects
/// byte i of the result; 0 to 3 are the bytes of `low`, 4 to 7 those of `high`. 8 to f select the sign of
/// byte digit - 8, eight times. (PTX ISA, prmt.b32)
template <uint32_t kSelector>
__device__ __forceinline__ uint32_t byte_permute(uint32_t low, uint32_t high) {
#ifdef __CUDACC__
  if constexpr ((kSelector & 0x8888) != 0) {  // __byte_perm ignores the bit that asks for signs
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "n"(kSelector));
    return bytes;
  }
#endif
  return __byte_perm(low, high, kSelector);
}

}  // namespace flashbook
