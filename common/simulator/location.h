/// \file
/// A place in a kernel's source, for reports.
#pragma once
#include <string>
#ifndef __clang__
#include <source_location>
#endif

/// Marks functions of the simulator that are inlined into kernels. The traced mode must not instrument them,
/// since their accesses are not part of the kernel.
#define FLASHBOOK_UNTRACED __attribute__((no_sanitize("thread")))

namespace flashbook::sim {

/// The file, line and column of a call. To receive its caller's location, a function takes
/// `Location where = Location::current()` as its last parameter. (std::source_location would do, but clang 14
/// lacks it.)
struct Location {
  const char* file = "";
  int line = 0;
  int column = 0;

#ifdef __clang__
  static constexpr Location current(const char* file = __builtin_FILE(), int line = __builtin_LINE(),
                                    int column = __builtin_COLUMN()) {
    return {file, line, column};
  }
#else
  static constexpr Location current(std::source_location place = std::source_location::current()) {
    return {place.file_name(), int(place.line()), int(place.column())};
  }
#endif
};

/// Returns a text such as "kernel.cuh:42", without directories.
std::string to_string(Location where);

}  // namespace flashbook::sim
