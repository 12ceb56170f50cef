/// \file
/// Blocks that take turns. Internal to the simulator.
///
/// If blocks run one after another, or each on an uninterrupted OS thread, they show few of the interleavings
/// that are possible on a GPU: after a block has stored a flag, it usually overwrites the announced data long
/// before the reader arrives, or never. So in random order a block lets another one run after some of the
/// operations that other blocks can see, and sometimes before it begins. The seed decides which block
/// continues: with one OS thread at a time, the same seed gives the same order. Without a seed, blocks on one
/// OS thread switch only when they wait for each other.
#pragma once
#include <cstdint>
#include <deque>
#include <mutex>
#include <semaphore>
#include <vector>

#include "common/simulator/block/scheduler.h"

namespace flashbook::sim {

/// OS threads of which only a given number may run at a time. They are numbered from 0 in the order in which
/// they enter.
class Turns {
 public:
  Turns(int at_one_time, uint64_t seed) : free_(at_one_time), random_(seed) {}

  /// Enters an OS thread. (Called by the thread that starts it, since the system may delay its start.)
  void enter();
  /// Undoes the last enter(), if the OS thread could not be started.
  void withdraw();
  /// Waits for the calling OS thread's first turn.
  void wait(int who);
  /// Lets a waiting OS thread run and waits for the next turn. Returns immediately if none is waiting.
  void hand_over(int who);
  /// Ends the calling OS thread's last turn.
  void leave();

 private:
  std::mutex mutex_;  // protects the members below
  int free_;          // number of unused turns
  Random random_;
  std::vector<int> waiting_;
  std::deque<std::binary_semaphore> has_turn_;  // one semaphore per OS thread
};

}  // namespace flashbook::sim
