/// \file
/// Barriers between the threads of a block.
#pragma once
#include "common/simulator/location.h"

namespace flashbook::sim {

/// Every block has barriers 0 ... 15; __syncthreads is barrier 0.
constexpr int kBarriers = 16;

/// The thread count that means all threads of the block that have not exited.
constexpr int kWholeBlock = 0;

/// Waits at a barrier until `threads` threads (a multiple of 32), or the whole block, have arrived. `what` is
/// the call's name in reports.
void barrier_sync(const char* what, int barrier, int threads, Location where);

/// Waits at barrier 0 for the whole block and returns the number of threads whose predicate is true.
int barrier_count(const char* what, bool predicate, Location where);

/// Arrives at a barrier without waiting.
void barrier_arrive(const char* what, int barrier, int threads, Location where);

/// Orders the calling thread's earlier memory accesses before its later ones. Only the traced mode needs
/// this: threads run one after another, so memory is always in order.
void memory_fence();

/// Waits until the previous launch has finished. Only the traced mode needs this; in all modes the launch has
/// already finished.
void wait_for_launch_before(Location where);

/// Allows the next launch to begin once all blocks have done so. Only the traced mode needs this.
void let_dependents_launch();

}  // namespace flashbook::sim

inline void __syncthreads(flashbook::sim::Location where = flashbook::sim::Location::current()) {
  flashbook::sim::barrier_sync("__syncthreads", 0, flashbook::sim::kWholeBlock, where);
}

inline int __syncthreads_count(int predicate,
                               flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::barrier_count("__syncthreads_count", predicate != 0, where);
}
inline int __syncthreads_or(int predicate,
                            flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::barrier_count("__syncthreads_or", predicate != 0, where) != 0;
}
inline int __syncthreads_and(int predicate,
                             flashbook::sim::Location where = flashbook::sim::Location::current()) {
  // Counts the false predicates, so that a thread that has exited does not count as false.
  return flashbook::sim::barrier_count("__syncthreads_and", predicate == 0, where) == 0;
}

inline void __threadfence() { flashbook::sim::memory_fence(); }
inline void __threadfence_block() { flashbook::sim::memory_fence(); }
inline void __threadfence_system() { flashbook::sim::memory_fence(); }
