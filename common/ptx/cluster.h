/// \file
/// Thread block clusters: up to eight blocks that run at one time on neighbouring multiprocessors, and reach
/// into each other's shared memory (distributed shared memory).
///
/// device::launch_cluster starts them. A block of a cluster has a rank, from 0 on. Every block has the same
/// variables at the same places, so an instruction names a place in another block by the caller's own pointer
/// and a rank; plain loads, stores and atomics take the pointer that mapa makes of the two.
///
///     mbarrier_init(&full, 1);                       one thread of each block
///     fence_mbarrier_init();
///     cluster_sync();                                all blocks have begun, and know the barriers
///     ...                                            reach into each other's memory
///     cluster_sync();                                nobody goes while others may still reach into its
///     memory
///
/// Preconditions of all: a `place`, a `tile` and a `barrier` are the calling block's own, in its shared
/// memory; a rank is one of the cluster's; the block that is meant has begun and will not exit before it is
/// over. Needs Hopper (sm_90). (PTX ISA, Cluster of CTAs; mapa)
#pragma once
#include <type_traits>

#include "common/ptx/call_site.h"
#include "common/ptx/shared_address.h"
#include "common/ptx/tma.h"

namespace flashbook {

#ifdef __CUDACC__
/// Where the same place lies in the block of that rank, as instructions name it. (PTX ISA, mapa)
__device__ __forceinline__ uint32_t shared_address_at(const void* place, int rank) {
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(place)), "r"(rank));
  return address;
}
#endif

/// The calling block's rank in its cluster, x first; 0 without one. (PTX ISA, %cluster_ctarank)
__device__ __forceinline__ int cluster_rank([[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return int(rank);
#else
  return sim::cluster_rank(where);
#endif
}

/// How many blocks the cluster has; 1 without one. (PTX ISA, %cluster_nctarank)
__device__ __forceinline__ int cluster_size([[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  uint32_t size;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return int(size);
#else
  return sim::cluster_size(where);
#endif
}

/// The same place in the shared memory of the block of that rank, for loads, stores and atomics. (PTX ISA,
/// mapa)
template <typename T>
__device__ __forceinline__ T* mapa(T* place, int rank,
                                   [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  uint64_t address;
  asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(place), "r"(rank));
  return reinterpret_cast<T*>(address);
#else
  return static_cast<T*>(sim::mapa(place, rank, where));
#endif
}

/// Arrives at the cluster's barrier. What the thread did before has happened for those who then wait. Every
/// thread of the cluster arrives and waits in turn. (PTX ISA, barrier.cluster.arrive)
__device__ __forceinline__ void cluster_arrive([[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#else
  sim::cluster_arrive("cluster_arrive", true, where);
#endif
}

/// The same, but hands over nothing that the thread wrote: for blocks that must only have begun.
__device__ __forceinline__ void cluster_arrive_relaxed(
    [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#else
  sim::cluster_arrive("cluster_arrive_relaxed", false, where);
#endif
}

/// Waits until all threads of the cluster that have not exited have arrived. (PTX ISA, barrier.cluster.wait)
__device__ __forceinline__ void cluster_wait([[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#else
  sim::cluster_wait("cluster_wait", where);
#endif
}

/// Arrives and waits: __syncthreads for a cluster.
__device__ __forceinline__ void cluster_sync([[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
#else
  sim::cluster_arrive("cluster_sync", true, where);
  sim::cluster_wait("cluster_sync", where);
#endif
}

/// Arrives at a barrier of the block of that rank, which waits there by mbarrier_wait_cluster. (PTX ISA,
/// mbarrier.arrive)
__device__ __forceinline__ void mbarrier_arrive_at(uint64_t* barrier, int rank,
                                                   [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];"
               :
               : "r"(shared_address_at(barrier, rank))
               : "memory");
#else
  sim::mbarrier_arrive_at(barrier, rank, where);
#endif
}

/// Announces `bytes` to a barrier of the block of that rank, and arrives there. (PTX ISA, mbarrier.arrive)
__device__ __forceinline__ void mbarrier_arrive_expect_tx_at(
    uint64_t* barrier, int rank, uint32_t bytes, [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;"
               :
               : "r"(shared_address_at(barrier, rank)), "r"(bytes)
               : "memory");
#else
  sim::mbarrier_arrive_expect_tx_at(barrier, rank, bytes, where);
#endif
}

/// Announces `bytes` to a barrier of the block of that rank, and does not arrive. (PTX ISA,
/// mbarrier.expect_tx)
__device__ __forceinline__ void mbarrier_expect_tx_at(uint64_t* barrier, int rank, uint32_t bytes,
                                                      [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;"
               :
               : "r"(shared_address_at(barrier, rank)), "r"(bytes)
               : "memory");
#else
  sim::mbarrier_expect_tx_at(barrier, rank, bytes, where);
#endif
}

/// mbarrier_try_wait for what threads of other blocks have arrived for, too. (PTX ISA,
/// mbarrier.try_wait.parity)
__device__ __forceinline__ bool mbarrier_try_wait_cluster(
    const uint64_t* barrier, uint32_t parity, [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  uint32_t over;
  asm volatile(
      "{\n"
      ".reg .pred over;\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%1], %2;\n"
      "selp.u32 %0, 1, 0, over;\n"
      "}"
      : "=r"(over)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return over != 0;
#else
  return sim::mbarrier_try_wait_cluster(barrier, parity, where);
#endif
}

/// mbarrier_wait for what threads of other blocks have arrived for, too: what they did before their arrival
/// has happened then. A block waits at its own barriers only. (Of bytes that an asynchronous copy brings,
/// mbarrier_wait is enough.)
__device__ __forceinline__ void mbarrier_wait_cluster(const uint64_t* barrier, uint32_t parity,
                                                      [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile(
      "{\n"
      ".reg .pred over;\n"
      "WAIT:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%0], %1;\n"
      "@!over bra WAIT;\n"
      "}"
      :
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
#else
  sim::mbarrier_wait_cluster(barrier, parity, where);
#endif
}

/// Stores a value of 4, 8 or 16 bytes in the block of that rank and does not wait for it. When it has landed,
/// its bytes are taken off what that block's barrier waits for. (PTX ISA, st.async)
template <typename T>
__device__ __forceinline__ void store_async(T* place, std::type_identity_t<T> value, uint64_t* barrier,
                                            int rank, [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "a value of 4, 8 or 16 bytes");
#ifdef __CUDACC__
  const uint32_t to = shared_address_at(place, rank), signal = shared_address_at(barrier, rank);
  uint32_t word[sizeof(T) / 4];
  memcpy(word, &value, sizeof(T));
  if constexpr (sizeof(T) == 4)
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
                 :
                 : "r"(to), "r"(word[0]), "r"(signal)
                 : "memory");
  else if constexpr (sizeof(T) == 8)
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];"
                 :
                 : "r"(to), "r"(word[0]), "r"(word[1]), "r"(signal)
                 : "memory");
  else
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
        :
        : "r"(to), "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3]), "r"(signal)
        : "memory");
#else
  sim::store_async("store_async", place, sim::async_word(value), barrier, rank, where);
#endif
}

/// What red_async does.
enum class Red { add, min, max, bit_and, bit_or, bit_xor };

/// Combines a whole number with the one at a place in the block of that rank, atomically, and does not wait
/// for it. When it is done, its bytes are taken off what that block's barrier waits for. Of 8 bytes there is
/// only the sum. (PTX ISA, red.async)
template <Red kOperation, typename T>
__device__ __forceinline__ void red_async(T* place, std::type_identity_t<T> value, uint64_t* barrier,
                                          int rank, [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned> ||
                    (std::is_same_v<T, unsigned long long> && kOperation == Red::add),
                "int, unsigned, or the sum of unsigned long long");
#ifdef __CUDACC__
  const uint32_t to = shared_address_at(place, rank), signal = shared_address_at(barrier, rank);
  if constexpr (sizeof(T) == 8)
    asm volatile(
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64 [%0], %1, [%2];"
        :
        : "r"(to), "l"(value), "r"(signal)
        : "memory");
  else if constexpr (kOperation == Red::add)
    asm volatile(
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];"
        :
        : "r"(to), "r"(value), "r"(signal)
        : "memory");
  else if constexpr (kOperation == Red::min && std::is_signed_v<T>)
    asm volatile(
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.min.s32 [%0], %1, [%2];"
        :
        : "r"(to), "r"(value), "r"(signal)
        : "memory");
  else if constexpr (kOperation == Red::min)
    asm volatile(
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.min.u32 [%0], %1, [%2];"
        :
        : "r"(to), "r"(value), "r"(signal)
        : "memory");
  else if constexpr (kOperation == Red::max && std::is_signed_v<T>)
    asm volatile(
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.max.s32 [%0], %1, [%2];"
        :
        : "r"(to), "r"(value), "r"(signal)
        : "memory");
  else if constexpr (kOperation == Red::max)
    asm volatile(
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.max.u32 [%0], %1, [%2];"
        :
        : "r"(to), "r"(value), "r"(signal)
        : "memory");
  else if constexpr (kOperation == Red::bit_and)
    asm volatile(
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.and.b32 [%0], %1, [%2];"
        :
        : "r"(to), "r"(value), "r"(signal)
        : "memory");
  else if constexpr (kOperation == Red::bit_or)
    asm volatile(
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.or.b32 [%0], %1, [%2];"
        :
        : "r"(to), "r"(value), "r"(signal)
        : "memory");
  else
    asm volatile(
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.xor.b32 [%0], %1, [%2];"
        :
        : "r"(to), "r"(value), "r"(signal)
        : "memory");
#else
  sim::AsyncWord word = sim::async_word(value);
  word.combines = true;
  word.operation = static_cast<sim::RedOperation>(kOperation);
  word.is_signed = std::is_signed_v<T>;
  sim::store_async("red_async", place, word, barrier, rank, where);
#endif
}

/// Copies bytes of the calling block's shared memory to that of the block of that rank. When all have landed,
/// they are taken off what that block's barrier waits for, and the source may be overwritten. Preconditions:
/// both places are multiples of 16, and so is `bytes`, which is not 0; what threads wrote to the source is
/// behind a fence_proxy_async. (PTX ISA, cp.async.bulk)
__device__ __forceinline__ void bulk_copy_to_rank(void* place, const void* source, uint32_t bytes,
                                                  uint64_t* barrier, int rank,
                                                  [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :
               : "r"(shared_address_at(place, rank)), "r"(shared_address(source)), "r"(bytes),
                 "r"(shared_address_at(barrier, rank))
               : "memory");
#else
  sim::bulk_copy_to_rank(place, source, bytes, barrier, rank, where);
#endif
}

/// Loads a box, as tma_load does, to the same place in several blocks of the cluster at once: those whose bit
/// (1 << rank) is in `blocks`. In each of them the bytes are taken off what the barrier at the same place
/// waits for, so each of them announces a whole box. (PTX ISA, cp.async.bulk.tensor, .multicast::cluster)
template <int kRank>
__device__ __forceinline__ void tma_load_multicast(void* tile, const CUtensorMap& map, uint64_t* barrier,
                                                   const int (&at)[kRank], uint32_t blocks,
                                                   [[maybe_unused]] KeepInL2 keep = KeepInL2::normal,
                                                   [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(1 <= kRank && kRank <= 5, "a tensor has 1 to 5 dimensions");
#ifdef __CUDACC__
  const uint32_t to = shared_address(tile), signal = shared_address(barrier);
  const auto policy = static_cast<uint64_t>(keep);
  const auto mask = static_cast<uint16_t>(blocks);
  if constexpr (kRank == 1)
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        ".L2::cache_hint [%0], [%1, {%5}], [%2], %3, %4;"
        :
        : "r"(to), "l"(&map), "r"(signal), "h"(mask), "l"(policy), "r"(at[0])
        : "memory");
  if constexpr (kRank == 2)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        ".L2::cache_hint [%0], [%1, {%5, %6}], [%2], %3, %4;"
        :
        : "r"(to), "l"(&map), "r"(signal), "h"(mask), "l"(policy), "r"(at[0]), "r"(at[1])
        : "memory");
  if constexpr (kRank == 3)
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        ".L2::cache_hint [%0], [%1, {%5, %6, %7}], [%2], %3, %4;"
        :
        : "r"(to), "l"(&map), "r"(signal), "h"(mask), "l"(policy), "r"(at[0]), "r"(at[1]), "r"(at[2])
        : "memory");
  if constexpr (kRank == 4)
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        ".L2::cache_hint [%0], [%1, {%5, %6, %7, %8}], [%2], %3, %4;"
        :
        : "r"(to), "l"(&map), "r"(signal), "h"(mask), "l"(policy), "r"(at[0]), "r"(at[1]), "r"(at[2]),
          "r"(at[3])
        : "memory");
  if constexpr (kRank == 5)
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        ".L2::cache_hint [%0], [%1, {%5, %6, %7, %8, %9}], [%2], %3, %4;"
        :
        : "r"(to), "l"(&map), "r"(signal), "h"(mask), "l"(policy), "r"(at[0]), "r"(at[1]), "r"(at[2]),
          "r"(at[3]), "r"(at[4])
        : "memory");
#else
  sim::tma_load_multicast(tile, map, barrier, at, kRank, blocks, where);
#endif
}

/// The same for bytes that lie side by side, as bulk_load copies them. Preconditions: as of bulk_load.
/// (PTX ISA, cp.async.bulk, .multicast::cluster)
__device__ __forceinline__ void bulk_load_multicast(void* shared, const void* global, uint32_t bytes,
                                                    uint64_t* barrier, uint32_t blocks,
                                                    [[maybe_unused]] KeepInL2 keep = KeepInL2::normal,
                                                    [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4, %5;"
      :
      : "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(bytes),
        "r"(shared_address(barrier)), "h"(static_cast<uint16_t>(blocks)), "l"(static_cast<uint64_t>(keep))
      : "memory");
#else
  sim::bulk_load_multicast(shared, global, bytes, barrier, blocks, where);
#endif
}

}  // namespace flashbook
