/// \file
/// What a traced program has done so far, for whoever prints it.
///
/// A program is traced if its kernels were compiled with -fsanitize=thread and linked with this library: the
/// compiler plants a call before every load and store, the calls are ours (entry_points.cpp), and launches in
/// such files name it as who watches. Races and accesses outside of allocations make a launch throw
/// Error, as every broken rule does; what accesses cost is counted, launch by launch.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "common/simulator/observer.h"
#include "common/simulator/trace/requests.h"

namespace flashbook::sim {

/// All requests that one line made of one kind.
struct LineCounts {
  std::string place;        ///< "kernel.cuh:42"
  std::string instruction;  ///< "ldmatrix_x4"; empty for plain C++
  Access access;
  bool shared;
  int bytes;  ///< a lane
  Counts counts;
  /// Sectors or wavefronts that better places in memory would save.
  uint64_t waste() const { return counts.units - counts.ideal; }
};

/// One launch.
struct LaunchTrace {
  std::string kernel;  ///< its name, without namespaces; empty if it is not known
  dim3 grid, block;
  std::vector<LineCounts> lines;  ///< the most waste first
  uint64_t busy_blocks = 0;       ///< that asked for anything
  uint64_t barriers = 0;          ///< that blocks passed, __syncthreads and named ones, summed over blocks
  // Of device memory, in whole sectors. Atomics count as reads and writes.
  uint64_t bytes_requested_read = 0, bytes_requested_written = 0;
  uint64_t bytes_distinct_read = 0, bytes_distinct_written = 0;
};

/// The launches since the last call, in order.
std::vector<LaunchTrace> take_trace();

}  // namespace flashbook::sim
