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

}  // namespace flashbook
