/// \file
/// Waste that the traced mode counts, for tests of kernels that should have none.
#pragma once
#include <string>

namespace flashbook::testing {

/// The lines of code that took more wavefronts of shared memory than well placed data takes, in the launches
/// since the last call of one of these two. Empty if there is none, or this program is not traced.
std::string bank_conflicts();

/// The same of device memory: sectors beyond those that the wanted bytes fill.
std::string wasted_sectors();

}  // namespace flashbook::testing
