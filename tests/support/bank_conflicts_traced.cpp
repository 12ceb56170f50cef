#include "common/simulator/trace/trace.h"
#include "tests/support/bank_conflicts.h"

namespace flashbook::testing {

std::optional<uint64_t> bank_conflicts() {
  uint64_t conflicts = 0;
  for (const sim::LaunchTrace& launch : sim::take_trace())
    for (const sim::LineCounts& line : launch.lines)
      if (line.shared) conflicts += line.waste();
  return conflicts;
}

}  // namespace flashbook::testing
