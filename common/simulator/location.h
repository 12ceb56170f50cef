/// \file
/// A place in a kernel's source, for reports.
#pragma once
#include <string>

namespace flashbook::sim {

/// File and line of a call. A function that wants its caller's takes `Location where = Location::current()`
/// last. (std::source_location would do, but clang 14 lacks what it needs.)
struct Location {
  const char* file = "";
  int line = 0;

  static constexpr Location current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// "kernel.cuh:42", without folders.
std::string to_string(Location where);

}  // namespace flashbook::sim
