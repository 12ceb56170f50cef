/// \file
/// What is said of clusters that break a rule, where nobody watches. What is right is in cluster_test.cu.
#include <set>
#include <string>

#include "tests/simulator/cluster_faults.h"

namespace flashbook {
namespace {

class ClusterReports : public sim::SimulatorTest {};

TEST_F(ClusterReports, EachFaultInEveryMode) {
  for (const ClusterFault& fault : cluster_faults::all()) {
    for (const sim::Async async : {sim::Async::lazy, sim::Async::eager, sim::Async::random}) {
      sim::options().async = async;
      for (uint64_t seed = async == sim::Async::random ? 1 : 0; seed < 3; ++seed) {
        sim::options().seed = seed;
        SCOPED_TRACE(std::string(fault.name) + ", mode " + std::to_string(int(async)) + ", seed " +
                     std::to_string(seed));
        const std::string report = cluster_faults::report_of(fault);
        for (const char* part : fault.untraced) sim::expect_in(report, part);
      }
    }
  }
}

TEST_F(ClusterReports, LaunchesThatAMachineRefuses) {
  const auto error_of = [](dim3 grid, dim3 cluster) -> std::string {
    try {
      sim::run_grid(
          grid, 32, 0, [] {}, nullptr, nullptr, false, cluster);
    } catch (const sim::Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_of(8, 8), "");
  sim::expect_in(error_of(9, 3 * 3), "clusters of (9,1,1) blocks: at most 8 blocks together");
  sim::expect_in(error_of(dim3(4, 3), dim3(2, 2)),
                 "clusters of (2,2,1) blocks in a grid of (4,3,1): each dimension of the grid must be a "
                 "multiple of the cluster's");
  sim::expect_in(error_of(4, dim3(2, 0)), "every dimension must be at least 1");
}

}  // namespace
}  // namespace flashbook
