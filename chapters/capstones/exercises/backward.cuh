/// \file
/// Exercise capstone-backward: the gradient of attention, from its formulas to whole kernels.
#pragma once
#include "chapters/capstones/contract.h"

namespace flashbook::capstone {

// BEGIN EXERCISE capstone-backward: the gradient from its formulas
// TODO: Kernels, and what launches them.
inline void plan(Plan&, const Backward&) {}
// END EXERCISE capstone-backward

}  // namespace flashbook::capstone
