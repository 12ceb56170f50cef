/// \file
/// What stands for the multiprocessor's clock.
#pragma once
#include <cstdint>

#include "common/simulator/atomics.h"

namespace flashbook::sim {

/// How often the calling OS thread, which runs whole blocks, was asked: simulated threads take no time, but
/// what one of a block does earlier has the smaller number.
inline int64_t clock_ticks() {
  static thread_local int64_t ticks = 0;
  return ++ticks;
}

}  // namespace flashbook::sim

/// Lets others run, which is all that time means here.
inline void __nanosleep(unsigned, flashbook::sim::Location where = flashbook::sim::Location::current()) {
  flashbook::sim::poll_memory("__nanosleep", where);
}
