/// \file
/// Reports crashes on systems that raise no signal for them: on a web page (docs/web).
#pragma once
#include <cstdint>
#include <string>

namespace flashbook::sim {

/// The reason why a call ended without returning.
enum class Trap {
  memory,    ///< an access outside of all memory
  stack,     ///< infinite recursion
  division,  ///< an integer division by zero, or of the smallest integer by -1
  other
};

/// Returns the error of the current thread, with its block and number; outside a kernel, returns only the
/// error. The simulator must not be used afterwards.
std::string describe_trap(Trap trap);

/// Totals since the process started.
struct Counts {
  uint64_t launches = 0;
  uint64_t blocks = 0;
  uint64_t threads = 0;
  uint64_t turns = 0;  ///< number of times that a thread was given a turn
};

Counts counts();

}  // namespace flashbook::sim
