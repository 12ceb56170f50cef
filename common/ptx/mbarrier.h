/// \file
/// mbarriers: barriers in shared memory that count arrivals of threads and bytes of asynchronous copies.
///
/// A barrier goes through a sequence of phases. A phase completes when `arrivals` threads have arrived and
/// all bytes that they announced have landed; the next phase begins immediately. A wait specifies the parity
/// of its phase: 0 for the first, 1 for the second, 0 for the third. Parity distinguishes only the current
/// phase from the previous one, so no thread may fall two phases behind. A new barrier counts as having
/// completed a phase of parity 1: the first wait for "empty" uses parity 1, and returns immediately.
///
///     full:   the producer announces the bytes and arrives, TMA writes them, consumers wait
///     empty:  consumers arrive when they have read the tile, the producer waits
///
/// Preconditions of all functions: the barrier is a `uint64_t` in shared memory. Only the hardware interprets
/// its value. Needs Hopper (sm_90). (PTX ISA, mbarrier)
#pragma once
#include "common/ptx/call_site.h"
#include "common/ptx/shared_address.h"

namespace flashbook {

/// Initialises a barrier whose phases expect `arrivals` arrivals (1 to 2^20 - 1). One thread calls it, before
/// a __syncthreads that lets the others use the barrier; if TMA uses it, fence_mbarrier_init must come in
/// between. (PTX ISA, mbarrier.init)
__device__ __forceinline__ void mbarrier_init(uint64_t* barrier, uint32_t arrivals,
                                              [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
               :
               : "r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
#else
  sim::mbarrier_init(barrier, arrivals, where);
#endif
}

/// Invalidates a barrier, so that its memory can hold other data or be initialised again. One thread calls it
/// after a __syncthreads, when no thread is waiting and no bytes are in flight. (PTX ISA, mbarrier.inval)
__device__ __forceinline__ void mbarrier_inval(uint64_t* barrier,
                                               [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" : : "r"(shared_address(barrier)) : "memory");
#else
  sim::mbarrier_inval(barrier, where);
#endif
}

/// Makes the barriers that the calling thread has initialised visible to TMA. (PTX ISA, fence.mbarrier_init)
__device__ __forceinline__ void fence_mbarrier_init([[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  sim::fence_mbarrier_init(where);
#endif
}

/// Names a barrier, with an index if it has one, for the simulator's reports: "full", "full[1]". Does nothing
/// on a GPU. Preconditions: the barrier is initialised; `name` is a literal.
__device__ __forceinline__ void name_mbarrier([[maybe_unused]] const uint64_t* barrier,
                                              [[maybe_unused]] const char* name,
                                              [[maybe_unused]] int index = -1,
                                              [[maybe_unused]] CallSite where = CallSite::current()) {
#ifndef __CUDACC__
  sim::name_mbarrier(barrier, name, index, where);
#endif
}

/// Arrives. Threads that then wait see all earlier writes of this thread. (PTX ISA, mbarrier.arrive)
__device__ __forceinline__ void mbarrier_arrive(uint64_t* barrier,
                                                [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(shared_address(barrier)) : "memory");
#else
  sim::mbarrier_arrive(barrier, where);
#endif
}

/// Announces `bytes` bytes for which the phase must also wait, and arrives. Whole boxes count, including the
/// zeros that TMA fills in beyond a tensor's edge. (PTX ISA, mbarrier.arrive.expect_tx)
__device__ __forceinline__ void mbarrier_arrive_expect_tx(
    uint64_t* barrier, uint32_t bytes, [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(shared_address(barrier)), "r"(bytes)
               : "memory");
#else
  sim::mbarrier_arrive_expect_tx(barrier, bytes, where);
#endif
}

/// Returns whether the phase with that parity has completed. If it has not, the hardware waits for a while
/// before it returns false. (PTX ISA, mbarrier.try_wait.parity)
__device__ __forceinline__ bool mbarrier_try_wait(const uint64_t* barrier, uint32_t parity,
                                                  [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  uint32_t over;
  asm volatile(
      "{\n"
      ".reg .pred over;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
      "selp.u32 %0, 1, 0, over;\n"
      "}"
      : "=r"(over)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return over != 0;
#else
  return sim::mbarrier_try_wait(barrier, parity, where);
#endif
}

/// Returns at once whether the phase with that parity has completed. (PTX ISA, mbarrier.test_wait.parity)
__device__ __forceinline__ bool mbarrier_test_wait(const uint64_t* barrier, uint32_t parity,
                                                   [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  uint32_t over;
  asm volatile(
      "{\n"
      ".reg .pred over;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 over, [%1], %2;\n"
      "selp.u32 %0, 1, 0, over;\n"
      "}"
      : "=r"(over)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return over != 0;
#else
  return sim::mbarrier_test_wait(barrier, parity, where);
#endif
}

/// Waits until the phase with that parity has completed: then everything written by the arriving threads, and
/// by TMA, can be read. (PTX ISA, mbarrier.try_wait.parity, repeated)
__device__ __forceinline__ void mbarrier_wait(const uint64_t* barrier, uint32_t parity,
                                              [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile(
      "{\n"
      ".reg .pred over;\n"
      "WAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
      "@!over bra WAIT;\n"
      "}"
      :
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
#else
  sim::mbarrier_wait(barrier, parity, where);
#endif
}

}  // namespace flashbook
