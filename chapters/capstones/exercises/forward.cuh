/// \file
/// Exercise capstone-forward: attention, from an empty file to a whole kernel.
#pragma once
#include "chapters/capstones/contract.h"

namespace flashbook::capstone {

// BEGIN EXERCISE capstone-forward: attention from an empty file
// TODO: Kernels, and what launches them.
inline void plan(Plan&, const Forward&) {}
// END EXERCISE capstone-forward

}  // namespace flashbook::capstone
