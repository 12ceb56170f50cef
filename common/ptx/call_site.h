/// \file
/// Where an instruction was issued, for the simulator's reports.
#pragma once
#include "common/device/kernel.h"

namespace flashbook {

#ifdef __CUDACC__
/// Nothing on a GPU. A wrapper that can wait or fail takes `CallSite where = CallSite::current()` last, on
/// both machines.
struct CallSite {
  __device__ static constexpr CallSite current() { return {}; }
};
#else
using CallSite = sim::Location;
#endif

}  // namespace flashbook
