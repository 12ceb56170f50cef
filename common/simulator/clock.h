/// \file
/// The replacement for the multiprocessor's clock.
#pragma once
#include <cstdint>

#include "common/simulator/atomics.h"

namespace flashbook::sim {

/// Counts the calls on the calling OS thread, which runs whole blocks: simulated threads take no time, but
/// earlier events in a block get smaller numbers.
inline int64_t clock_ticks() {
  static thread_local int64_t ticks = 0;
  return ++ticks;
}

}  // namespace flashbook::sim

/// Lets other threads run. The simulator has no other notion of time here.
inline void __nanosleep(unsigned, flashbook::sim::Location where = flashbook::sim::Location::current()) {
  flashbook::sim::poll_memory("__nanosleep", where);
}
