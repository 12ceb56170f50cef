/// \file
/// Formats a grid's races and conflicts. Internal to the simulator.
#pragma once
#include <map>
#include <string>
#include <utility>

#include "common/simulator/trace/device_memory.h"
#include "common/simulator/trace/shared_races.h"

namespace flashbook::sim {

/// Collects faults and keeps one for each pair of source locations: the one in the block with the lowest
/// number and, if possible, between different warps, since whatever orders warps also orders lanes.
class Faults {
 public:
  /// `threads` is the number of threads in a block; `memory` is the location, such as "dynamic shared memory
  /// + 64 of 1024 bytes". `waited` is the last wait of the thread whose copy is in flight; empty if
  /// irrelevant.
  void add(const Race& race, uint64_t block, int threads, const std::string& memory,
           const std::string& waited);
  void add(const BlockConflict& conflict, int threads);
  /// Adds a read of "shared" memory that no thread of the block has written, or of "device" memory that has
  /// never been written.
  void add_unwritten(const char* kind, Site site, uint64_t block, int thread, const std::string& memory);

  /// Adds the simulator's suspicions about a block with faults (Mbarriers::suspects). Only those of the
  /// lowest-numbered block are kept.
  void add_suspects(uint64_t block, std::string suspects);

  /// Returns all faults of a launch of `kernel`, with source lines and advice.
  std::string report(const void* kernel) const;

 private:
  struct Side {
    std::string who;
    Site site;
    Access access;
  };
  struct Fault {
    uint64_t block;
    bool one_warp;
    std::string what;
    Side first, second;  ///< the second has no name if there is only one side
    std::string advice;
    uint64_t turn = 0;  ///< order in which the faults of a block were found and are reported
    bool unwritten = false;
  };
  using Places = std::pair<std::pair<Site, Access>, std::pair<Site, Access>>;
  /// Returns whether a fault should replace the recorded one for the same two places.
  bool is_better(const Places& places, uint64_t block, bool one_warp) const;

  std::map<Places, Fault> found_;
  uint64_t turns_ = 0;
  std::map<uint64_t, std::string> suspects_;  ///< keyed by block
};

}  // namespace flashbook::sim
