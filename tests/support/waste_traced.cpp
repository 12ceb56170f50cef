#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "common/simulator/trace/trace.h"
#include "tests/support/waste.h"

namespace flashbook::testing {
namespace {

/// Returns "transpose.cuh:24: a global store of 4 bytes per lane takes 32 sectors per request, and 4 would
/// do".
std::string describe(const sim::LineCounts& line) {
  std::ostringstream text;
  const double requests = double(line.counts.requests);
  const char* access = line.access == sim::Access::load    ? "load"
                       : line.access == sim::Access::store ? "store"
                                                           : "atomic";
  text << line.place << ": a " << (line.shared ? "shared " : "global ") << access << " of " << line.bytes
       << " bytes per lane" << (line.instruction.empty() ? "" : " by ") << line.instruction << " takes "
       << double(line.counts.units) / requests << (line.shared ? " wavefronts" : " sectors")
       << " per request";
  if (line.waste() > 0) text << ", and " << double(line.counts.ideal) / requests << " would do";
  return text.str();
}

/// Returns the launches since the last call; prints them under ./flashbook profile ID (FLASHBOOK_PROFILE).
std::vector<sim::LaunchTrace> taken() {
  static const bool is_printed = std::getenv("FLASHBOOK_PROFILE");
  std::vector<sim::LaunchTrace> launches = sim::take_trace();
  for (const sim::LaunchTrace& launch : launches) {
    if (!is_printed) break;
    std::printf("%s, a launch of %u x %u x %u blocks\n", launch.kernel.c_str(), launch.grid.x, launch.grid.y,
                launch.grid.z);
    for (const sim::LineCounts& line : launch.lines)
      std::printf("  %s; %llu requests\n", describe(line).c_str(), (unsigned long long)line.counts.requests);
  }
  return launches;
}

std::string waste(bool shared) {
  std::string text;
  for (const sim::LaunchTrace& launch : taken())
    for (const sim::LineCounts& line : launch.lines)
      if (line.shared == shared && line.waste() > 0) text += (text.empty() ? "" : "\n") + describe(line);
  return text;
}

/// Discards launches that a test did not query.
struct Printer : ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo&) override { taken(); }
};
[[maybe_unused]] const bool kPrints = [] {
  if (std::getenv("FLASHBOOK_PROFILE")) ::testing::UnitTest::GetInstance()->listeners().Append(new Printer);
  return true;
}();

}  // namespace

std::string bank_conflicts() { return waste(true); }
std::string wasted_sectors() { return waste(false); }

}  // namespace flashbook::testing
