#include "common/simulator/trace/trace.h"
#include "tests/support/bank_conflicts.h"

namespace flashbook::testing {
namespace {

uint64_t waste(bool shared) {
  uint64_t sum = 0;
  for (const sim::LaunchTrace& launch : sim::take_trace())
    for (const sim::LineCounts& line : launch.lines)
      if (line.shared == shared) sum += line.waste();
  return sum;
}

}  // namespace

std::optional<uint64_t> bank_conflicts() { return waste(true); }
std::optional<uint64_t> wasted_sectors() { return waste(false); }

}  // namespace flashbook::testing
