/// \file
/// Finds the callers of a function that was not inlined into its kernel. Internal to the simulator.
#pragma once
#include <cstdint>
#include <vector>

namespace flashbook::sim {

/// Returns the calls in a kernel's own code that lead, directly or through other functions, to the function
/// that contains `code`. Code offsets are those of source_lines.h. Empty if that function is the kernel
/// itself, if it is called only through pointers, and on processors other than x86-64 and arm64.
std::vector<std::uintptr_t> calls_that_lead_to(std::uintptr_t code, const void* kernel);

}  // namespace flashbook::sim
