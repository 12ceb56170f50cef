/// \file
/// Additions in global memory that no thread waits for, and words with which threads of all blocks hand over
/// data.
///
/// CUDA's own atomics (atomicAdd and similar ones, also for float2 and float4) need no header. A thread
/// publishes its writes by store_release or by an addition with release to a word. A thread that then reads
/// the word by load_acquire, or adds with acquire, may read the published data. A barrier before the release,
/// or after the acquire, extends this to the whole block. TMA's stores are published after a tma_store_wait.
///
/// Preconditions of all functions: the address is in global memory, at a multiple of the size.
#pragma once
#include "common/ptx/call_site.h"

namespace flashbook {

/// Adds to a float in global memory without waiting for it. The order of additions is arbitrary. A subnormal
/// argument or sum becomes 0. (PTX ISA, red)
__device__ __forceinline__ void red_add(float* address, float value,
                                        [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;"
               :
               : "l"(__cvta_generic_to_global(address)), "f"(value)
               : "memory");
#else
  sim::red_add(address, std::array{value}, where);
#endif
}

/// Adds to two floats in global memory with one instruction. Each addition is atomic, but not the pair. Needs
/// Hopper (sm_90).
__device__ __forceinline__ void red_add(float2* address, float2 value,
                                        [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};"
               :
               : "l"(__cvta_generic_to_global(address)), "f"(value.x), "f"(value.y)
               : "memory");
#else
  sim::red_add(address, std::array{value.x, value.y}, where);
#endif
}

/// Adds to four floats in global memory with one instruction. Needs Hopper.
__device__ __forceinline__ void red_add(float4* address, float4 value,
                                        [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(address)), "f"(value.x), "f"(value.y), "f"(value.z),
                 "f"(value.w)
               : "memory");
#else
  sim::red_add(address, std::array{value.x, value.y, value.z, value.w}, where);
#endif
}

/// Reads a word of 4 or 8 bytes, and acquires the data published by the writer of the value that it reads.
/// (PTX ISA, ld.acquire.gpu)
template <typename T>
__device__ __forceinline__ T load_acquire(const T* address,
                                          [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a word of 4 or 8 bytes");
#ifdef __CUDACC__
  if constexpr (sizeof(T) == 4) {
    uint32_t word;
    asm volatile("ld.acquire.gpu.global.b32 %0, [%1];"
                 : "=r"(word)
                 : "l"(__cvta_generic_to_global(address))
                 : "memory");
    return static_cast<T>(word);
  } else {
    uint64_t word;
    asm volatile("ld.acquire.gpu.global.b64 %0, [%1];"
                 : "=l"(word)
                 : "l"(__cvta_generic_to_global(address))
                 : "memory");
    return static_cast<T>(word);
  }
#else
  return sim::load_acquire(address, where);
#endif
}

/// Stores a word of 4 or 8 bytes, and publishes everything that the thread has written or acquired from
/// others. (PTX ISA, st.release.gpu)
template <typename T>
__device__ __forceinline__ void store_release(T* address, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a word of 4 or 8 bytes");
#ifdef __CUDACC__
  if constexpr (sizeof(T) == 4)
    asm volatile("st.release.gpu.global.b32 [%0], %1;"
                 :
                 : "l"(__cvta_generic_to_global(address)), "r"(static_cast<uint32_t>(value))
                 : "memory");
  else
    asm volatile("st.release.gpu.global.b64 [%0], %1;"
                 :
                 : "l"(__cvta_generic_to_global(address)), "l"(static_cast<uint64_t>(value))
                 : "memory");
#else
  sim::store_release(address, value);
#endif
}

/// Adds to a word of 4 or 8 bytes, and publishes data like store_release. (PTX ISA, red.release.gpu)
template <typename T>
__device__ __forceinline__ void red_add_release(T* address, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a word of 4 or 8 bytes");
#ifdef __CUDACC__
  if constexpr (sizeof(T) == 4)
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;"
                 :
                 : "l"(__cvta_generic_to_global(address)), "r"(static_cast<uint32_t>(value))
                 : "memory");
  else
    asm volatile("red.release.gpu.global.add.u64 [%0], %1;"
                 :
                 : "l"(__cvta_generic_to_global(address)), "l"(static_cast<uint64_t>(value))
                 : "memory");
#else
  sim::add_acq_rel(address, value);
#endif
}

/// Adds to a word of 4 or 8 bytes and returns the previous value. Publishes data like store_release, and
/// acquires data like load_acquire. With this, the last of several blocks to arrive learns that it is the
/// last. (PTX ISA, atom.acq_rel.gpu)
template <typename T>
__device__ __forceinline__ T atomic_add_acq_rel(T* address, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a word of 4 or 8 bytes");
#ifdef __CUDACC__
  if constexpr (sizeof(T) == 4) {
    uint32_t old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "l"(__cvta_generic_to_global(address)), "r"(static_cast<uint32_t>(value))
                 : "memory");
    return static_cast<T>(old);
  } else {
    uint64_t old;
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;"
                 : "=l"(old)
                 : "l"(__cvta_generic_to_global(address)), "l"(static_cast<uint64_t>(value))
                 : "memory");
    return static_cast<T>(old);
  }
#else
  return sim::add_acq_rel(address, value);
#endif
}

}  // namespace flashbook
