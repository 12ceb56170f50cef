/// \file
/// Places in a kernel's source, as numbers that fit into every record of an access. Internal to the
/// simulator.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/simulator/location.h"

namespace flashbook::sim {

/// Either a code address, counted from the program's beginning, or an instruction of the simulator with the
/// place that it was called from.
using Site = uint32_t;

/// Where the program's code begins: what sites of code are counted from.
extern const std::uintptr_t code_begin;

/// The site of the code before `return_address`. (The call ends where the next instruction begins, which may
/// belong to the next line.)
inline Site site_of_code(const void* return_address) {
  return Site(std::uintptr_t(return_address) - code_begin) - 1;
}

/// The site of an instruction: its name and its call. Both must outlive the program, as literals do.
Site site_of_instruction(const char* instruction, Location where);

/// An instruction of the simulator, and its call.
struct Instruction {
  const char* name;
  Location where;
};

/// The instruction of a site; null if it is code.
const Instruction* instruction_of(Site site);

/// What a reader wants to know of a site.
struct SourceLine {
  std::string
      place;  ///< "kernel.cuh:42", "tile.cuh:7 from kernel.cuh:42"; "code at 0x1234" where no line is known
  std::string kernel =
      {};  ///< "kernel.cuh:12": the line in the kernel's own file, if `place` does not name it
  std::string instruction = {};  ///< "ldmatrix_x4"; empty for a plain access

  /// Whether no line is known that belongs to a kernel or its helpers.
  bool is_unknown() const { return place.starts_with("code at "); }
  /// All of it, for a report: "ldmatrix_x4 at tile.cuh:7 from stages.cuh:3 from kernel.cuh:12".
  std::string described() const {
    return (instruction.empty() ? "" : instruction + " at ") + place +
           (kernel.empty() ? "" : " from " + kernel);
  }
};

/// The lines of many sites. Where the compiler put one function into another, it is the innermost line that
/// does not belong to the simulator or to the wrappers around it; if that is a helper in another file than
/// the kernel's, the kernel's own line is named too. So it is of a helper that was called, by all calls in
/// `kernel` that lead there, unless that is null.
std::map<Site, SourceLine> source_lines(std::span<const Site> sites, const void* kernel = nullptr);

}  // namespace flashbook::sim
