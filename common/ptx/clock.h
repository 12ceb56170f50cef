/// \file
/// The clock of a multiprocessor.
#pragma once
#include "common/device/kernel.h"

namespace flashbook {

/// Returns the multiprocessor's cycle count. Threads of one block may compare their values; in the simulator
/// only the order is meaningful. (PTX ISA, %clock64)
__device__ __forceinline__ int64_t clock_cycles() {
#ifdef __CUDACC__
  int64_t cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles));
  return cycles;
#else
  return sim::clock_ticks();
#endif
}

}  // namespace flashbook
