/// \file
/// What a test may ask from within a kernel.
#pragma once
#ifndef __CUDACC__
#include "common/simulator/in_flight.h"
#endif

namespace flashbook::device {

/// Whether the calling thread may have copies by cp.async that it has not waited for. No only if the
/// simulator knows that it has none; a GPU cannot say.
__device__ inline bool may_have_copies_in_flight() {
#ifdef __CUDACC__
  return true;
#else
  return sim::may_have_copies_in_flight();
#endif
}

}  // namespace flashbook::device
