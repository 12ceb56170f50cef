/// \file
/// What makes the threads of a block wait for each other.
#pragma once
#include "common/simulator/location.h"

namespace flashbook::sim {

/// Every block has barriers 0 ... 15; __syncthreads is barrier 0.
constexpr int kBarriers = 16;

/// Stands for all threads of the block that have not exited.
constexpr int kWholeBlock = 0;

/// Waits at barrier `barrier` until `threads` threads, a multiple of 32, or the whole block have arrived.
/// `what` is the name of the call in reports.
void barrier_sync(const char* what, int barrier, int threads, Location where);

/// Waits at barrier 0 for the whole block and returns how many threads have come with a predicate that is
/// true.
int barrier_count(const char* what, bool predicate, Location where);

/// Arrives at a barrier without waiting.
void barrier_arrive(const char* what, int barrier, int threads, Location where);

/// What the calling thread did before comes before what it does afterwards. One thread runs after another, so
/// memory is in order anyway; the traced mode wants to know.
void memory_fence();

/// Waits for the end of the launch before, which is over anyway; the traced mode wants to know.
void wait_for_launch_before(Location where);

/// The next launch may begin, for this block; the traced mode wants to know.
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
  // Whoever says no is counted, so that a thread that has exited is no voice against.
  return flashbook::sim::barrier_count("__syncthreads_and", predicate == 0, where) == 0;
}

inline void __threadfence() { flashbook::sim::memory_fence(); }
inline void __threadfence_block() { flashbook::sim::memory_fence(); }
inline void __threadfence_system() { flashbook::sim::memory_fence(); }
