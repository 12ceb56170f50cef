/// \file
/// Detects loops that take numbers from a counter and never end. Internal to the simulator.
///
/// A persistent block takes tiles from a counter until none are left. If it fails to stop after the last one,
/// every iteration still makes progress: the counter grows, and threads meet at barriers. But nothing else in
/// device memory changes any more.
#pragma once
#include <cstdint>

#include "common/simulator/location.h"

namespace flashbook::sim {

class Scheduler;

/// Watches a block's additions to integers.
class CounterLoop {
 public:
  void begin_block() { counter_ = nullptr; }

  /// Notes that the current thread has added to a counter. Throws Error if the block has done nothing else
  /// for a long time.
  void add(const void* counter, const Scheduler& scheduler, const char* what, Location where) {
    if (counter != counter_) {
      counter_ = counter;
      additions_ = 0;
    } else if (++additions_ % kAdditionsATime == 0) {
      look(scheduler, what, where);
    }
  }

 private:
  static constexpr uint64_t kAdditionsATime = 4096;

  void look(const Scheduler& scheduler, const char* what, Location where);

  const void* counter_ = nullptr;    ///< counter of the last addition
  uint64_t additions_ = 0;           ///< number of consecutive additions to that counter
  double since_ = 0;                 ///< start of the count, in seconds
  uint64_t turns_ = 0, memory_ = 0;  ///< number of turns, and a checksum of device memory, at that time
};

}  // namespace flashbook::sim
