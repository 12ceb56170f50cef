/// \file
/// For who runs kernels where no signal tells of a crash: a web page (docs/web).
#pragma once
#include <cstdint>
#include <string>

namespace flashbook::sim {

/// Why a call has ended without returning.
enum class Trap {
  memory,    ///< an access beyond all memory
  stack,     ///< calls without end
  division,  ///< of an integer by zero, or of the least one by -1
  other
};

/// What a thread has done, with its block and its number; where no kernel runs, that. The simulator is not to
/// be used any more.
std::string describe_trap(Trap trap);

/// What the simulator has done since the process began.
struct Counts {
  uint64_t launches = 0;
  uint64_t blocks = 0;
  uint64_t threads = 0;
  uint64_t turns = 0;  ///< how often a thread was given the processor
};

Counts counts();

}  // namespace flashbook::sim
