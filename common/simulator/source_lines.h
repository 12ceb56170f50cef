/// \file
/// Maps code addresses to lines of a kernel's source. Internal to the simulator.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace flashbook::sim {

/// Returns the offset of an address in the program's file, which its debug information uses.
std::uintptr_t offset_in_program(const void* code);

/// Returns the source lines of the code at these offsets: "tile.cuh:7" and then, for inlined code, the line
/// of the call, and so on. Lines of the simulator and its wrappers are left out; code without debug
/// information has no lines. A single call of addr2line (from binutils) looks up all offsets.
std::map<std::uintptr_t, std::vector<std::string>> source_lines_of_code(
    std::span<const std::uintptr_t> offsets);

/// Returns the function that contains this code, such as "textbook_scores<float>", without namespaces and
/// parameters; empty if unknown.
std::string function_name(const void* code);

}  // namespace flashbook::sim
