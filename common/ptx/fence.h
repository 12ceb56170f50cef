/// \file
/// Fences between the two ways to access memory: threads (the generic proxy), and the units that copy and
/// multiply on their own, TMA and WGMMA (the async proxy).
#pragma once
#include "common/ptx/call_site.h"

namespace flashbook {

/// Makes what the calling thread wrote to shared memory visible to TMA stores and WGMMA that are issued
/// later. The writing threads call it before the barrier that lets the issuing thread continue. Data written
/// by TMA needs no fence: its mbarrier is enough. (PTX ISA, fence.proxy.async)
__device__ __forceinline__ void fence_proxy_async([[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
  sim::fence_proxy_async(where);
#endif
}

/// Makes what the calling thread has written to or acquired from global memory visible to TMA operations that
/// are issued later, by this thread or by one to which it hands data over. Between plain stores and a TMA
/// load of (or addition to) the same data in one launch, this fence is required. (PTX ISA,
/// fence.proxy.async)
__device__ __forceinline__ void fence_proxy_async_global(
    [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("fence.proxy.async.global;" ::: "memory");
#else
  sim::fence_proxy_async_global(where);
#endif
}

}  // namespace flashbook
