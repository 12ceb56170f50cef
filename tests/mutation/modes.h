/// \file
/// Runs of a kernel in the simulator, in every mode.
#pragma once
#include <string>
#include <string_view>

#include "tests/mutation/subject.h"

namespace flashbook::mutation {

/// Returns the mode's name on the page and in the lists of faults.
std::string_view name_of(Mode mode);

/// Returns the first report of the mode, from several seeds if it is random. Each run has its own process, so
/// that crashes and endless runs are reported.
std::string first_report(Mode mode, const Kernel& kernel, Attention attention, const Spec& spec);

}  // namespace flashbook::mutation
