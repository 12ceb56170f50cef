/// \file
/// Races and conflicts of a grid, in words. Internal to the simulator.
#pragma once
#include <map>
#include <string>
#include <tuple>

#include "common/simulator/trace/device_memory.h"
#include "common/simulator/trace/shared_races.h"

namespace flashbook::sim {

/// Collects faults: of all that concern the same two places in the source, the one in the lowest block.
class Faults {
 public:
  /// `threads` of a block; `memory` says where it happened, "dynamic shared memory + 64 of 1024 bytes".
  void add(const Race& race, uint64_t block, int threads, const std::string& memory);
  void add(const BlockConflict& conflict);

  bool empty() const { return found_.empty(); }
  /// All of them, with lines and advice.
  std::string report() const;

 private:
  struct Side {
    std::string who;
    Site site;
    Access access;
  };
  struct Fault {
    uint64_t block;
    std::string what;
    Side first, second;
    std::string advice;
  };
  void add(Fault fault);

  std::map<std::tuple<Site, Site, Access, Access>, Fault> found_;
};

}  // namespace flashbook::sim
