/// \file
/// Wasted accesses counted by the traced mode, for tests of kernels that should have none.
#pragma once
#include <string>

namespace flashbook::testing {

/// Returns the lines of code that took more wavefronts of shared memory than conflict-free data would, in the
/// launches since the last call of either function. Empty if there are none, or this program is not traced.
std::string bank_conflicts();

/// Returns the lines of code that requested more sectors of device memory than their bytes fill. Empty as
/// above.
std::string wasted_sectors();

}  // namespace flashbook::testing
