/// \file
/// What the simulator's traced mode counts of loads.
#pragma once
#include <vector>

namespace flashbook::machine {

/// Of each launch since the last call that loads from shared (or global) memory: sectors of global memory,
/// wavefronts of shared, that a warp's load takes. Empty if the kernels are not traced.
std::vector<double> units_of_loads(bool shared);

}  // namespace flashbook::machine
