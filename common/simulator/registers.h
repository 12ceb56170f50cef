/// \file
/// setmaxnreg: how many registers the warps of a block have.
#pragma once
#include "common/simulator/location.h"

namespace flashbook::sim {

/// The registers that every thread of a kernel has when it starts, if so many `blocks` of that many `threads`
/// share the 64K of a multiprocessor. It is an assumption, since no compiler says here: what ptxas gives a
/// kernel with `__launch_bounds__(threads, blocks)` that uses setmaxnreg.
int registers_at_start(int threads, int blocks = 1);

// What the wrappers of common/ptx/setmaxnreg.h do.
void setmaxnreg_inc(int registers, Location where);
void setmaxnreg_dec(int registers, Location where);

}  // namespace flashbook::sim
