/// \file
/// Races and conflicts of a grid, in words. Internal to the simulator.
#pragma once
#include <map>
#include <string>
#include <utility>

#include "common/simulator/trace/device_memory.h"
#include "common/simulator/trace/shared_races.h"

namespace flashbook::sim {

/// Collects faults: of all that concern the same two places in the source, one in the lowest block, and of
/// different warps if there is such a one, since what orders warps orders lanes too.
class Faults {
 public:
  /// `threads` of a block; `memory` says where it happened, "dynamic shared memory + 64 of 1024 bytes".
  /// `waited` is what the thread of a copy in flight waited for last; empty if that is no matter.
  void add(const Race& race, uint64_t block, int threads, const std::string& memory,
           const std::string& waited);
  void add(const BlockConflict& conflict, int threads);
  /// A thread of a block has read "shared" memory that nobody in the block writes, or "device" memory that
  /// nobody has written before.
  void add_unwritten(const char* kind, Site site, uint64_t block, int thread, const std::string& memory);

  /// What the simulator suspects in a block with faults (Mbarriers::suspects); the lowest block's is kept.
  void add_suspects(uint64_t block, std::string suspects);

  /// All of them, of a launch of `kernel`, with lines and advice.
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
    Side first, second;  ///< the second has no name if there is only one
    std::string advice;
    uint64_t turn = 0;  ///< faults of one block are reported in the order in which they were found
    bool unwritten = false;
  };
  using Places = std::pair<std::pair<Site, Access>, std::pair<Site, Access>>;
  /// Whether a fault is to be kept: what is known of its two places is less telling.
  bool is_better(const Places& places, uint64_t block, bool one_warp) const;

  std::map<Places, Fault> found_;
  uint64_t turns_ = 0;
  std::map<uint64_t, std::string> suspects_;  ///< of blocks
};

}  // namespace flashbook::sim
