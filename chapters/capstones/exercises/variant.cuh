/// \file
/// Exercise capstone-variant: attention in a variant that the book does not have, another for each student.
#pragma once
#include "chapters/capstones/contract.h"

namespace flashbook::capstone {

// BEGIN EXERCISE capstone-variant: a variant of your own
// TODO: Kernels, and what launches them.
inline void plan(Plan&, const Variant&) {}
// END EXERCISE capstone-variant

}  // namespace flashbook::capstone
