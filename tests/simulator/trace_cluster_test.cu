/// \file
/// Races between blocks of a cluster. This file is instrumented (flashbook_traced).
#include <string>

#include "tests/simulator/cluster_faults.h"

namespace flashbook {
namespace {

class TraceCluster : public sim::SimulatorTest {};

TEST_F(TraceCluster, EachFaultIsReported) {
  for (const ClusterFault& fault : cluster_faults::all()) {
    SCOPED_TRACE(fault.name);
    const std::string report = cluster_faults::report_of(fault);
    for (const char* part : fault.traced) sim::expect_in(report, part);
  }
}

TEST_F(TraceCluster, EachFaultIsReportedWhenCopiesLandAtOnce) {
  sim::options().async = sim::Async::eager;
  for (const ClusterFault& fault : cluster_faults::all()) {
    SCOPED_TRACE(fault.name);
    EXPECT_NE(cluster_faults::report_of(fault), "");
  }
}

}  // namespace
}  // namespace flashbook
