/// \file
/// Fences between the two ways to memory: threads (the generic proxy) and the machines that copy and
/// multiply on their own, TMA and WGMMA (the async proxy).
#pragma once
#include "common/ptx/call_site.h"

namespace flashbook {

/// Makes what the calling thread wrote to shared memory visible to TMA stores and WGMMA that are issued
/// later. The writers call it, and then the barrier that lets the issuing thread go on; what TMA wrote needs
/// no fence, its mbarrier is enough. (PTX ISA, fence.proxy.async)
__device__ __forceinline__ void fence_proxy_async([[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
  sim::fence_proxy_async(where);
#endif
}

/// The same for global memory: what the calling thread wrote, or has been handed over, becomes visible to TMA
/// that is issued later by it, or by whom it hands over to. Data that plain stores of the same launch wrote
/// and TMA loads, or adds to, needs one between. (PTX ISA, fence.proxy.async)
__device__ __forceinline__ void fence_proxy_async_global(
    [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("fence.proxy.async.global;" ::: "memory");
#else
  sim::fence_proxy_async_global(where);
#endif
}

}  // namespace flashbook
