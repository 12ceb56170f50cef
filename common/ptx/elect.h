/// \file
/// Electing one thread of a warp, for example to issue a copy.
#pragma once
#include "common/ptx/call_site.h"

namespace flashbook {

/// Returns whether the warp elects the calling lane; for the same mask it always elects the same lane.
/// Precondition: exactly the lanes in `mask` call it together. Needs Hopper (sm_90). (PTX ISA, elect.sync)
__device__ __forceinline__ bool elect_one(unsigned mask = 0xffffffff,
                                          [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred elected;\n"
      "elect.sync _|elected, %1;\n"
      "selp.u32 %0, 1, 0, elected;\n"
      "}"
      : "=r"(elected)
      : "r"(mask)
      : "memory");
  return elected != 0;
#else
  return sim::elect_one(mask, where);
#endif
}

}  // namespace flashbook
