/// \file
/// The results of a traced program, for printing.
///
/// A program is traced if its kernels were compiled with -fsanitize=thread and linked with this library: the
/// compiler inserts a call before every load and store, this library defines the called functions
/// (entry_points.cpp), and launches in such files name it as their watcher. Races and accesses outside
/// allocations make a launch throw Error, like any violation; the cost of accesses is counted per launch.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "common/simulator/observer.h"
#include "common/simulator/trace/requests.h"

namespace flashbook::sim {

/// All requests of one kind from one line.
struct LineCounts {
  std::string place;        ///< "kernel.cuh:42"
  std::string instruction;  ///< "ldmatrix_x4"; empty for plain C++
  Access access;
  bool shared;
  int bytes;  ///< bytes per lane
  Counts counts;
  /// Returns the number of sectors or wavefronts that a better memory layout would save.
  uint64_t waste() const { return counts.units - counts.ideal; }
};

struct LaunchTrace {
  std::string kernel;  ///< name without namespaces; empty if unknown
  dim3 grid, block;
  std::vector<LineCounts> lines;  ///< largest waste first
  uint64_t busy_blocks = 0;       ///< number of blocks that made any request
  uint64_t barriers = 0;          ///< number of barriers passed, including named ones, summed over blocks
  // Device memory traffic in whole sectors. Atomics count as both a read and a write.
  uint64_t bytes_requested_read = 0, bytes_requested_written = 0;
  uint64_t bytes_distinct_read = 0, bytes_distinct_written = 0;
};

/// Returns the launches since the last call, in order.
std::vector<LaunchTrace> take_trace();

}  // namespace flashbook::sim
