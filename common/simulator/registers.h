/// \file
/// setmaxnreg: changes the number of registers of a block's warps.
#pragma once
#include "common/simulator/location.h"

namespace flashbook::sim {

/// Returns the number of registers per thread when a kernel starts, if this many `blocks` of `threads`
/// threads share the 64K registers of a multiprocessor. No compiler decides this here, so it is an
/// assumption: ptxas's choice for a kernel with `__launch_bounds__(threads, blocks)` that uses setmaxnreg.
int registers_at_start(int threads, int blocks = 1);

// The implementation of the wrappers in common/ptx/setmaxnreg.h.
void setmaxnreg_inc(int registers, Location where);
void setmaxnreg_dec(int registers, Location where);

}  // namespace flashbook::sim
