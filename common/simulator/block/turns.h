/// \file
/// Blocks that take turns. Internal to the simulator.
///
/// Blocks that run one after another, or each on an OS thread of its own that is never stopped, come to few
/// of the orders that a GPU may have: who stores a flag and goes on has long overwritten what the flag speaks
/// of when the reader comes, or never before. So in random order a block hands over to another one after some
/// of its operations that other blocks can see, and sometimes before it begins. Which goes on, the seed
/// decides: on one OS thread at a time, the same seed gives the same order. Without a seed, blocks of one OS
/// thread hand over only where they wait for each other.
#pragma once
#include <cstdint>
#include <deque>
#include <mutex>
#include <semaphore>
#include <vector>

#include "common/simulator/block/scheduler.h"

namespace flashbook::sim {

/// OS threads of which only some run at one time. They are named by numbers from 0 on, in the order in which
/// they enter.
class Turns {
 public:
  Turns(int at_one_time, uint64_t seed) : free_(at_one_time), random_(seed) {}

  /// An OS thread wants a turn. (The one that begins it says so, since the system may let it wait.)
  void enter();
  /// The last one that has entered could not be begun.
  void withdraw();
  /// It waits for its first.
  void wait(int who);
  /// Lets one of those who wait run instead, and waits for the next turn. If nobody waits, the turn goes on.
  void hand_over(int who);
  /// It is through.
  void leave();

 private:
  std::mutex mutex_;  // of what follows
  int free_;          // turns that nobody has
  Random random_;
  std::vector<int> waiting_;
  std::deque<std::binary_semaphore> has_turn_;  // of each
};

}  // namespace flashbook::sim
