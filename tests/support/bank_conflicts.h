/// \file
/// Waste that the traced mode counts, for tests of kernels that should have none.
#pragma once
#include <cstdint>
#include <optional>

namespace flashbook::testing {

/// Wavefronts of shared memory that the launches since the last call of one of these two took beyond what
/// well placed data takes. Nothing if this program is not traced.
std::optional<uint64_t> bank_conflicts();

/// The same of device memory: sectors beyond those that the wanted bytes fill.
std::optional<uint64_t> wasted_sectors();

}  // namespace flashbook::testing
