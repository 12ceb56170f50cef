/// \file
/// Places in a kernel's source, as numbers small enough to store with every record of an access. Internal to
/// the simulator.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "common/simulator/location.h"

namespace flashbook::sim {

/// A code address relative to the program's start, or an instruction of the simulator with the place from
/// which it was called.
using Site = uint32_t;

/// The start of the program's code; sites that denote code are relative to this address.
extern const std::uintptr_t code_begin;

/// Returns the site of the code before `return_address`. (A return address points to the next instruction,
/// which may belong to the next line.)
inline Site site_of_code(const void* return_address) {
  return Site(std::uintptr_t(return_address) - code_begin) - 1;
}

/// Returns the site of an instruction, given by its name and its call. Both must live until the program ends,
/// as literals do.
Site site_of_instruction(const char* instruction, Location where);

/// An instruction of the simulator and its call.
struct Instruction {
  const char* name;
  Location where;
};

/// Returns the instruction of a site; null if the site is code.
const Instruction* instruction_of(Site site);

/// The description of a site.
struct SourceLine {
  std::string
      place;  ///< "kernel.cuh:42", "tile.cuh:7 from kernel.cuh:42"; "code at 0x1234" if the line is unknown
  std::string kernel =
      {};  ///< "kernel.cuh:12": the line in the kernel's own file, if `place` does not name it
  std::string instruction = {};  ///< "ldmatrix_x4"; empty for a plain access

  /// Returns whether no line of a kernel or of its helpers is known.
  bool is_unknown() const { return place.starts_with("code at "); }
  /// Returns the whole description: "ldmatrix_x4 at tile.cuh:7 from stages.cuh:3 from kernel.cuh:12".
  std::string described() const {
    return (instruction.empty() ? "" : instruction + " at ") + place +
           (kernel.empty() ? "" : " from " + kernel);
  }
};

/// Returns the lines of many sites. For inlined code, this is the innermost line outside the simulator and
/// its wrappers; if that line is in a helper outside the kernel's file, the kernel's own line is added.
/// For a helper that was not inlined, all calls in `kernel` that lead to it are added, unless `kernel` is
/// null.
std::map<Site, SourceLine> source_lines(std::span<const Site> sites, const void* kernel = nullptr);

}  // namespace flashbook::sim
