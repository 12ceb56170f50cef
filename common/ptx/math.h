/// \file
/// Arithmetic that C++ has no name for.
#pragma once
#include "common/device/kernel.h"

namespace flashbook {

/// 2^x, one instruction of the special function unit. Precondition: none; -inf gives 0, NaN gives NaN. The
/// result is off by at most 2 units in the last place, and a subnormal argument or result becomes 0; the
/// simulator rounds better and keeps subnormals. (PTX ISA, ex2.approx.ftz.f32)
__device__ __forceinline__ float exp2_approx(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

/// `x` held between 0 and 1; NaN gives 0. A multiply-add before it has it for nothing. (PTX ISA,
/// fma.rn.sat.f32)
__device__ __forceinline__ float saturate(float x) { return __saturatef(x); }

/// tanh(x), one instruction of the special function unit, good to 11 bits: the relative error is at most
/// 2^-10.98. A subnormal result stays. The simulator is as coarse, and another in the last of these bits.
/// (PTX ISA, tanh.approx.f32)
__device__ __forceinline__ float tanh_approx(float x) {
#ifdef __CUDACC__
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return sim::rounded_to_11_bits(std::tanh(x));
#endif
}

/// The largest of three integers, one instruction from sm_90 on (CUDA's DPX functions).
__device__ __forceinline__ int max3(int a, int b, int c) {
#ifdef __CUDACC__
  return __vimax3_s32(a, b, c);
#else
  return std::max({a, b, c});
#endif
}

/// Four of the eight bytes of two registers: digit i of the selector, counted from the right, says which byte
/// becomes byte i; 0 to 3 are those of `low`, 4 to 7 those of `high`. (PTX ISA, prmt.b32)
template <uint32_t kSelector>
__device__ __forceinline__ uint32_t byte_permute(uint32_t low, uint32_t high) {
  return __byte_perm(low, high, kSelector);
}

}  // namespace flashbook
