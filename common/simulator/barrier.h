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

/// Arrives at a barrier without waiting.
void barrier_arrive(const char* what, int barrier, int threads, Location where);

/// What the calling thread did before comes before what it does afterwards. One thread runs after another, so
/// memory is in order anyway; the traced mode wants to know.
void memory_fence();

}  // namespace flashbook::sim

inline void __syncthreads(flashbook::sim::Location where = flashbook::sim::Location::current()) {
  flashbook::sim::barrier_sync("__syncthreads", 0, flashbook::sim::kWholeBlock, where);
}

inline void __threadfence() { flashbook::sim::memory_fence(); }
inline void __threadfence_block() { flashbook::sim::memory_fence(); }
