/// \file
/// Named barriers: __syncthreads for a subset of a block's warps.
///
/// A block has 16 of them; __syncthreads is number 0. A barrier completes when `kThreads` threads have
/// arrived, whichever they are, and is then ready for the next round. Make ids and counts template arguments
/// if you can: for an id known only at run time, ptxas must reserve all 16.
#pragma once
#include "common/device/kernel.h"
#include "common/ptx/call_site.h"

namespace flashbook {

/// Arrives at barrier `kBarrier` and waits until `kThreads` threads have arrived. Their earlier writes to
/// shared and global memory are then visible to the threads that waited. Preconditions: whole warps call it,
/// and all calls for one round of the barrier give the same count. (PTX ISA, barrier.sync and bar.sync)
template <int kBarrier, int kThreads>
__device__ __forceinline__ void named_barrier_sync([[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(0 <= kBarrier && kBarrier < 16, "a block has barriers 0 to 15");
  static_assert(kThreads > 0 && kThreads <= 1024 && kThreads % 32 == 0, "whole warps arrive at a barrier");
#ifdef __CUDACC__
  asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
#else
  sim::barrier_sync("named_barrier_sync", kBarrier, kThreads, where);
#endif
}

/// named_barrier_sync for a barrier and a number of threads that are known only at run time.
__device__ __forceinline__ void named_barrier_sync(int barrier, int threads,
                                                   [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
#else
  sim::barrier_sync("named_barrier_sync", barrier, threads, where);
#endif
}

/// Arrives at barrier `kBarrier` without waiting: a producer's signal to threads that wait with
/// named_barrier_sync, which then see all of the caller's earlier writes. Preconditions: as above. (PTX ISA,
/// barrier.arrive and bar.arrive)
template <int kBarrier, int kThreads>
__device__ __forceinline__ void named_barrier_arrive([[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(0 <= kBarrier && kBarrier < 16, "a block has barriers 0 to 15");
  static_assert(kThreads > 0 && kThreads <= 1024 && kThreads % 32 == 0, "whole warps arrive at a barrier");
#ifdef __CUDACC__
  asm volatile("bar.arrive %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
#else
  sim::barrier_arrive("named_barrier_arrive", kBarrier, kThreads, where);
#endif
}

/// named_barrier_arrive for a barrier and a number of threads that are known only at run time.
__device__ __forceinline__ void named_barrier_arrive(int barrier, int threads,
                                                     [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
#else
  sim::barrier_arrive("named_barrier_arrive", barrier, threads, where);
#endif
}

}  // namespace flashbook
