/// \file
/// Who calls a function that the compiler did not put into its kernel. Internal to the simulator.
#pragma once
#include <cstdint>
#include <vector>

namespace flashbook::sim {

/// The calls in a kernel's own code by which it comes, also by way of other functions, to the function that
/// code belongs to. Code is counted as in source_lines.h. Nothing if that function is the kernel itself, if
/// it is called by pointers only, and on processors other than x86-64 and arm64.
std::vector<std::uintptr_t> calls_that_lead_to(std::uintptr_t code, const void* kernel);

}  // namespace flashbook::sim
