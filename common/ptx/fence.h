/// \file
/// Fences between the two ways to access memory: threads (the generic proxy), and TMA and WGMMA, the units
/// that copy and multiply asynchronously (the async proxy).
#pragma once
#include "common/ptx/call_site.h"

namespace flashbook {

/// Makes the calling thread's writes to shared memory visible to TMA stores and WGMMAs issued later. The
/// writing threads call it before the barrier that lets the issuing thread continue. Data written by TMA
/// needs no fence: its mbarrier is enough. (PTX ISA, fence.proxy.async)
__device__ __forceinline__ void fence_proxy_async([[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
  sim::fence_proxy_async(where);
#endif
}

/// Makes the data that the calling thread has written to or acquired from global memory visible to TMA
/// operations issued later, by this thread or by one to which it publishes data. Between plain stores and a
/// TMA load of (or addition to) the same data in one launch, this fence is required. (PTX ISA,
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
