/// \file
/// From code addresses to lines of a kernel's source. Internal to the simulator.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace flashbook::sim {

/// Where an address lies in the program's file, by which its debug information knows it.
std::uintptr_t offset_in_program(const void* code);

/// The lines that the code at these offsets comes from: "tile.cuh:7", then, where the compiler put one
/// function into another, the line that called it, and so on. Lines of the simulator and of the wrappers
/// around it are left out; nothing is known of code without debug information. binutils' addr2line reads that
/// once for all of them.
std::map<std::uintptr_t, std::vector<std::string>> source_lines_of_code(
    std::span<const std::uintptr_t> offsets);

/// "textbook_scores<float>": the function that this code belongs to, without namespaces and parameters; empty
/// if its name is not known.
std::string function_name(const void* code);

}  // namespace flashbook::sim
