/// \file
/// Races between dependent launches, which overlap. This file is instrumented (flashbook_traced).
#include <string>

#include "common/device/launch.h"
#include "common/ptx/dependent_launch.h"
#include "tests/simulator/simulated.h"
#include "tests/values.h"

namespace flashbook {
namespace {

constexpr unsigned kThreads = 64;

/// The behaviour of the second of three dependent launches.
enum class Middle { waits_first, waits_late, never_waits };

__global__ void first_of_chain(float* row) {
  let_dependents_launch();
  row[threadIdx.x] = 1;
}
__global__ void middle_of_chain(Middle middle) {
  if (middle == Middle::waits_first) wait_for_launch_before();
  let_dependents_launch();
  if (middle == Middle::waits_late) wait_for_launch_before();
}
/// Reads or overwrites the output of the first launch.
__global__ void last_of_chain(float* row, float* out, bool early, bool reads) {
  if (!early) wait_for_launch_before();
  if (reads)
    out[threadIdx.x] = row[threadIdx.x];
  else
    row[threadIdx.x] = 2;
}

using TraceLaunches = sim::SimulatorTest;
using sim::expect_in;

std::string chains(Middle middle, bool early, bool reads, bool dependent = true) {
  const Values<float> row(kThreads), out(kThreads);
  try {
    device::launch(first_of_chain, 1, kThreads, 0, nullptr, row.data());
    device::launch(dependent ? device::Start::dependent : device::Start::plain, middle_of_chain, 1, kThreads,
                   0, nullptr, middle);
    device::launch_dependent(last_of_chain, 1, kThreads, 0, nullptr, row.data(), out.data(), early, reads);
  } catch (const device::DeviceError& error) {
    return error.what();
  }
  return "";
}

TEST_F(TraceLaunches, EachOfAChainOfDependentLaunchesWaits) {
  for (const bool reads : {false, true}) {
    for (const bool early : {false, true}) {
      EXPECT_EQ(chains(Middle::waits_first, early, reads), "");
      EXPECT_EQ(chains(Middle::never_waits, early, reads, false), "")
          << "a plain launch waits for all before it";
      const std::string error = chains(Middle::never_waits, early, reads);
      expect_in(error, "the launch 2 before this one, in block 0, wrote at trace_launches_test.cu:");
      expect_in(error, "every kernel must call wait_for_launch_before");
    }
    EXPECT_EQ(chains(Middle::waits_late, false, reads), "");
    expect_in(chains(Middle::waits_late, true, reads), "or there ahead of let_dependents_launch");
  }
}

}  // namespace
}  // namespace flashbook
