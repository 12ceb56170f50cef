/// \file
/// setmaxnreg: changes the number of registers of a block's warps.
#pragma once
#include "common/simulator/location.h"

namespace flashbook::sim {

/// Returns the number of registers per thread when a kernel starts, if this many `blocks` of `threads`
/// threads share a multiprocessor's 64K registers. No compiler determines this number here, so we assume
/// ptxas's choice for a kernel with `__launch_bounds__(threads, blocks)` that uses setmaxnreg.
int registers_at_start(int threads, int blocks = 1);

// The functions behind the wrappers in common/ptx/setmaxnreg.h.
void setmaxnreg_inc(int registers, Location where);
void setmaxnreg_dec(int registers, Location where);

}  // namespace flashbook::sim
