/// \file
/// TMA: a unit that copies tiles of a tensor between global and shared memory while threads do other things.
///
/// One thread issues a copy. The tensor, its box (the tile's size) and the swizzle come from a tensor map,
/// which the host creates (common/device/tensor_map.h) and the kernel takes as
/// `const __grid_constant__ CUtensorMap`. `at` is the start of the box, in elements, innermost dimension
/// first; a list in braces is enough: `tma_load(tile, map, &full, {0, row, head})`.
///
/// Preconditions of loads and stores: the tile is in shared memory at a multiple of 128 bytes, or better
/// 1024, where every swizzle starts its pattern; `at` has as many coordinates as the map. Needs Hopper
/// (sm_90). (PTX ISA, cp.async.bulk.tensor)
#pragma once
#include "common/device/tensor_map_type.h"
#include "common/ptx/call_site.h"
#include "common/ptx/shared_address.h"

namespace flashbook {

/// How long the L2 cache should keep the data that a load reads. The values are createpolicy's, as CUTLASS
/// uses them (cute/arch/copy_sm90_desc.hpp, TMA::CacheHintSm90).
enum class KeepInL2 : uint64_t {
  normal = 0x1000000000000000,
  evict_first = 0x12F0000000000000,  ///< for data that is read once
  evict_last = 0x14F0000000000000    ///< for data that every block reads
};

/// Loads a box. Elements outside the tensor are loaded as zeros. When the box has landed, its bytes,
/// including the zeros, are subtracted from the pending bytes of the barrier's phase. Until then the tile
/// must not be read; in the simulator it is NaN.
template <int kRank>
__device__ __forceinline__ void tma_load(void* tile, const CUtensorMap& map, uint64_t* barrier,
                                         const int (&at)[kRank],
                                         [[maybe_unused]] KeepInL2 keep = KeepInL2::normal,
                                         [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(1 <= kRank && kRank <= 5, "a tensor has 1 to 5 dimensions");
#ifdef __CUDACC__
  const uint32_t to = shared_address(tile), signal = shared_address(barrier);
  const auto policy = static_cast<uint64_t>(keep);
  if constexpr (kRank == 1)
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%4}], [%2], %3;"
        :
        : "r"(to), "l"(&map), "r"(signal), "l"(policy), "r"(at[0])
        : "memory");
  if constexpr (kRank == 2)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%4, %5}], [%2], %3;"
        :
        : "r"(to), "l"(&map), "r"(signal), "l"(policy), "r"(at[0]), "r"(at[1])
        : "memory");
  if constexpr (kRank == 3)
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%4, %5, %6}], [%2], %3;"
        :
        : "r"(to), "l"(&map), "r"(signal), "l"(policy), "r"(at[0]), "r"(at[1]), "r"(at[2])
        : "memory");
  if constexpr (kRank == 4)
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%4, %5, %6, %7}], [%2], %3;"
        :
        : "r"(to), "l"(&map), "r"(signal), "l"(policy), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
        : "memory");
  if constexpr (kRank == 5)
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;"
        :
        : "r"(to), "l"(&map), "r"(signal), "l"(policy), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
          "r"(at[4])
        : "memory");
#else
  sim::tma_load(tile, map, barrier, at, kRank, where);
#endif
}

/// Stores a box. Elements beyond the tensor's end are left out; a negative coordinate is an illegal
/// instruction on an H200. The tile may be overwritten once it has been read: see tma_store_wait_read.
/// Precondition: the threads that wrote to the tile have called fence_proxy_async, followed by a
/// barrier.
template <int kRank>
__device__ __forceinline__ void tma_store(const CUtensorMap& map, const void* tile, const int (&at)[kRank],
                                          [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(1 <= kRank && kRank <= 5, "a tensor has 1 to 5 dimensions");
#ifdef __CUDACC__
  const uint32_t from = shared_address(tile);
  if constexpr (kRank == 1)
    asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%2}], [%1];"
                 :
                 : "l"(&map), "r"(from), "r"(at[0])
                 : "memory");
  if constexpr (kRank == 2)
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
                 :
                 : "l"(&map), "r"(from), "r"(at[0]), "r"(at[1])
                 : "memory");
  if constexpr (kRank == 3)
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
                 :
                 : "l"(&map), "r"(from), "r"(at[0]), "r"(at[1]), "r"(at[2])
                 : "memory");
  if constexpr (kRank == 4)
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
                 :
                 : "l"(&map), "r"(from), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
                 : "memory");
  if constexpr (kRank == 5)
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];"
                 :
                 : "l"(&map), "r"(from), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])
                 : "memory");
#else
  sim::tma_store(tile, map, at, kRank, where);
#endif
}

/// Adds a box of float32 to the tensor, each element atomically: any number of blocks may add to the same
/// elements, in any order, concurrently with red_add and atomicAdd. Unlike these, it keeps subnormals (tested
/// on an H200). It is committed and waited for like a store, and leaves out elements outside the tensor. The
/// precondition of a store applies. (PTX ISA, cp.reduce.async.bulk.tensor)
template <int kRank>
__device__ __forceinline__ void tma_reduce_add(const CUtensorMap& map, const void* tile,
                                               const int (&at)[kRank],
                                               [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(1 <= kRank && kRank <= 5, "a tensor has 1 to 5 dimensions");
#ifdef __CUDACC__
  const uint32_t from = shared_address(tile);
  if constexpr (kRank == 1)
    asm volatile("cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.bulk_group [%0, {%2}], [%1];"
                 :
                 : "l"(&map), "r"(from), "r"(at[0])
                 : "memory");
  if constexpr (kRank == 2)
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0, {%2, %3}], [%1];"
                 :
                 : "l"(&map), "r"(from), "r"(at[0]), "r"(at[1])
                 : "memory");
  if constexpr (kRank == 3)
    asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.bulk_group [%0, {%2, %3, %4}], [%1];"
                 :
                 : "l"(&map), "r"(from), "r"(at[0]), "r"(at[1]), "r"(at[2])
                 : "memory");
  if constexpr (kRank == 4)
    asm volatile(
        "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
        :
        : "l"(&map), "r"(from), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
        : "memory");
  if constexpr (kRank == 5)
    asm volatile(
        "cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];"
        :
        : "l"(&map), "r"(from), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])
        : "memory");
#else
  sim::tma_reduce_add(tile, map, at, kRank, where);
#endif
}

/// Commits the thread's stores since its last commit as a group. (PTX ISA, cp.async.bulk.commit_group)
__device__ __forceinline__ void tma_store_commit([[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#else
  sim::tma_store_commit(where);
#endif
}

/// Waits until all of the thread's groups are in global memory, except for the latest kInFlight. Stores that
/// are not committed are not waited for. (PTX ISA, cp.async.bulk.wait_group)
template <int kInFlight>
__device__ __forceinline__ void tma_store_wait([[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(kInFlight >= 0, "a number of groups");
#ifdef __CUDACC__
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kInFlight) : "memory");
#else
  sim::tma_store_wait(kInFlight, where);
#endif
}

/// Waits only until the tiles of these groups have been read, and may be overwritten or freed at the block's
/// end. (PTX ISA, cp.async.bulk.wait_group.read)
template <int kInFlight>
__device__ __forceinline__ void tma_store_wait_read([[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(kInFlight >= 0, "a number of groups");
#ifdef __CUDACC__
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kInFlight) : "memory");
#else
  sim::tma_store_wait_read(kInFlight, where);
#endif
}

/// Prefetches the map itself, so that the first copy need not wait for it. (PTX ISA, prefetch.tensormap)
__device__ __forceinline__ void tma_prefetch(const CUtensorMap& map,
                                             [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#else
  sim::tma_prefetch(map, where);
#endif
}

}  // namespace flashbook
