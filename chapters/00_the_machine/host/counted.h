/// \file
/// What the simulator's traced mode counts of loads.
#pragma once
#include <vector>

namespace flashbook::machine {

/// For each launch since the last call that loads from shared (or global) memory: the wavefronts (or sectors)
/// per load of a warp. Empty if the kernels are not traced.
std::vector<double> units_of_loads(bool shared);

}  // namespace flashbook::machine
