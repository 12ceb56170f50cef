/// \file
/// cp.async: copies from global to shared memory that bypass the registers and run while the thread
/// continues.
///
/// A thread's copies land in groups: the thread issues some, commits them as a group, does other work, and
/// waits until all but the latest few groups have landed. The wait covers only the thread's own copies; a
/// barrier must follow before data copied by other threads may be read. Until then the destination must not
/// be read; in the simulator it is NaN.
///
/// Or an mbarrier tracks the copies: cp_async_arrive.
#pragma once
#include "common/ptx/call_site.h"
#include "common/ptx/shared_address.h"

namespace flashbook {

/// Copies `valid_bytes` bytes and fills the rest of 16 bytes with zeros, bypassing the L1 cache: for data
/// that is used once. Preconditions: both addresses are multiples of 16; 0 <= valid_bytes <= 16, and that
/// many bytes can be read at `global` (none, for a row beyond the tensor's edge). (PTX ISA, cp.async.cg)
__device__ __forceinline__ void cp_async_cg(void* shared, const void* global, int valid_bytes = 16,
                                            [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(valid_bytes)
               : "memory");
#else
  sim::cp_async("cp_async_cg", shared, global, 16, valid_bytes, where);
#endif
}

/// Copies and fills kBytes = 4, 8 or 16 bytes through the L1 cache. The preconditions are those of
/// cp_async_cg, with kBytes in place of 16. (PTX ISA, cp.async.ca)
template <int kBytes>
__device__ __forceinline__ void cp_async_ca(void* shared, const void* global, int valid_bytes = kBytes,
                                            [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "cp.async.ca copies 4, 8 or 16 bytes");
#ifdef __CUDACC__
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
               :
               : "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)), "n"(kBytes),
                 "r"(valid_bytes)
               : "memory");
#else
  sim::cp_async("cp_async_ca", shared, global, kBytes, valid_bytes, where);
#endif
}

/// Fetches the line at `global` into the L2: a hint. (PTX ISA, prefetch.global.L2)
__device__ __forceinline__ void prefetch_l2([[maybe_unused]] const void* global) {
#ifdef __CUDACC__
  asm volatile("prefetch.global.L2 [%0];" : : "l"(__cvta_generic_to_global(global)));
#endif
}

/// Commits the thread's copies since its last commit as a group, which is empty if there are none. (PTX ISA,
/// cp.async.commit_group)
__device__ __forceinline__ void cp_async_commit([[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  sim::cp_async_commit(where);
#endif
}

/// Waits until all of the thread's groups have landed, except for the latest kInFlight. Copies that are not
/// committed are not waited for. (PTX ISA, cp.async.wait_group)
template <int kInFlight>
__device__ __forceinline__ void cp_async_wait([[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(kInFlight >= 0, "a number of groups");
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(kInFlight) : "memory");
#else
  sim::cp_async_wait(kInFlight, where);
#endif
}

/// Arrives at an mbarrier as soon as all copies that the thread has issued so far have landed. The arrival is
/// one of those that mbarrier_init has announced, and publishes only the copies, not the thread's other
/// writes. The thread's own waits need not cover these copies any more. (PTX ISA,
/// cp.async.mbarrier.arrive.noinc)
__device__ __forceinline__ void cp_async_arrive(uint64_t* barrier,
                                                [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"
               :
               : "r"(shared_address(barrier))
               : "memory");
#else
  sim::cp_async_arrive(barrier, where);
#endif
}

/// Waits until all of the thread's copies have landed, committed or not. (PTX ISA, cp.async.wait_all)
__device__ __forceinline__ void cp_async_wait_all([[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_all;" ::: "memory");
#else
  sim::cp_async_wait_all(where);
#endif
}

}  // namespace flashbook
