/// \file
/// The place from which an instruction was issued, for the simulator's reports.
#pragma once
#include "common/device/kernel.h"

namespace flashbook {

#ifdef __CUDACC__
/// Empty on a GPU. On both machines, a wrapper that can wait or fail takes
/// `CallSite where = CallSite::current()` as its last parameter.
struct CallSite {
  __device__ static constexpr CallSite current() { return {}; }
};
#else
using CallSite = sim::Location;
#endif

}  // namespace flashbook
