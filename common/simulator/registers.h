/// \file
/// setmaxnreg: how many registers the warps of a block have.
#pragma once
#include "common/simulator/location.h"

namespace flashbook::sim {

/// The registers that every thread of a kernel has when it starts, for a block of that many threads. It is an
/// assumption, since no compiler says here: what ptxas gives a kernel with `__launch_bounds__(threads, 1)`
/// that uses setmaxnreg, all 64K of a multiprocessor.
int registers_at_start(int threads);

// What the wrappers of common/ptx/setmaxnreg.h do.
void setmaxnreg_inc(int registers, Location where);
void setmaxnreg_dec(int registers, Location where);

}  // namespace flashbook::sim
