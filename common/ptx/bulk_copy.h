/// \file
/// Bulk copies: TMA copies of contiguous bytes, without a tensor map.
///
/// Stores and additions belong to the same groups as tma_store and tma_reduce_add, and the same calls commit
/// them and wait for them (tma.h). Preconditions of all functions: both addresses are multiples of 16, and
/// `bytes` is a positive multiple of 16. Needs Hopper (sm_90). (PTX ISA, cp.async.bulk)
#pragma once
#include "common/ptx/tma.h"

namespace flashbook {

/// Copies to shared memory. When all bytes have landed, they are subtracted from the pending bytes of the
/// barrier's phase.
__device__ __forceinline__ void bulk_load(void* shared, const void* global, uint32_t bytes, uint64_t* barrier,
                                          [[maybe_unused]] KeepInL2 keep = KeepInL2::normal,
                                          [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
      "[%3], %4;"
      :
      : "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(bytes),
        "r"(shared_address(barrier)), "l"(static_cast<uint64_t>(keep))
      : "memory");
#else
  sim::bulk_load(shared, global, bytes, barrier, where);
#endif
}

/// Copies from shared memory. The precondition of tma_store applies.
__device__ __forceinline__ void bulk_store(void* global, const void* shared, uint32_t bytes,
                                           [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               :
               : "l"(__cvta_generic_to_global(global)), "r"(shared_address(shared)), "r"(bytes)
               : "memory");
#else
  sim::bulk_store(global, shared, bytes, where);
#endif
}

/// Adds bytes / 4 floats in shared memory to those in global memory, each atomically, as tma_reduce_add does.
/// (PTX ISA, cp.reduce.async.bulk)
__device__ __forceinline__ void bulk_reduce_add(float* global, const float* shared, uint32_t bytes,
                                                [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
               :
               : "l"(__cvta_generic_to_global(global)), "r"(shared_address(shared)), "r"(bytes)
               : "memory");
#else
  sim::bulk_reduce_add(global, shared, bytes, where);
#endif
}

}  // namespace flashbook
