/// \file
/// setmaxnreg: moves registers from warpgroups that need few to those that need many.
///
/// A block starts with the same number of registers for every thread, chosen by ptxas. With
/// `__launch_bounds__(threads, 1)` that is 65536 / threads, rounded down to a multiple of 8; without the 1,
/// ptxas cannot know the number and ignores setmaxnreg (its remark C7508). A warpgroup of producers then
/// releases some, and warpgroups of consumers acquire them.
///
/// Preconditions of both functions: all warps of the warpgroup execute the same one; kRegisters is a multiple
/// of 8 from 24 to 256. Needs sm_90a. (PTX ISA, setmaxnreg)
#pragma once
#include "common/ptx/call_site.h"

namespace flashbook {

/// Acquires registers for a total of kRegisters per thread, and waits until others have released enough.
/// Precondition: the thread has at most kRegisters.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc([[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(24 <= kRegisters && kRegisters <= 256 && kRegisters % 8 == 0,
                "setmaxnreg takes multiples of 8 from 24 to 256");
#ifdef __CUDACC__
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#else
  sim::setmaxnreg_inc(kRegisters, where);
#endif
}

/// Releases all but kRegisters per thread. Precondition: the thread has at least kRegisters.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec([[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(24 <= kRegisters && kRegisters <= 256 && kRegisters % 8 == 0,
                "setmaxnreg takes multiples of 8 from 24 to 256");
#ifdef __CUDACC__
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#else
  sim::setmaxnreg_dec(kRegisters, where);
#endif
}

}  // namespace flashbook
