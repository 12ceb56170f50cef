/// \file
/// The simulator's counts for loads, in traced mode.
#pragma once
#include <vector>

namespace flashbook::machine {

/// Returns, for each launch since the last call that loads from shared (or global) memory, the wavefronts (or
/// sectors) per warp-level load. Empty if the kernels are not traced.
std::vector<double> units_of_loads(bool shared);

}  // namespace flashbook::machine
