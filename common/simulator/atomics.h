/// \file
/// Atomic operations. Blocks of one grid run on several OS threads, so these are atomic for the host too.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "common/simulator/barrier.h"
#include "common/simulator/location.h"
#include "common/simulator/memory.h"
#include "common/simulator/vector_types.h"

namespace flashbook::sim {

/// The calling thread read memory by an operation that changed nothing, as loops do that wait for another
/// thread. After some of these in a row others get their turn.
void poll_memory(const char* what, Location where);

/// Replaces *address by update(*address) and returns what it was.
template <typename T, typename Update>
T atomic_update(T* address, Update update) {
  T old;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  T next = update(old);
  while (!__atomic_compare_exchange(address, &old, &next, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
    next = update(old);
  return old;
}

/// As global memory adds floats: a subnormal argument or sum becomes 0 of the same sign. (PTX ISA, atom)
inline float add_in_global_memory(float* address, float value) {
  const auto flushed = [](float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    return (bits & 0x7f80'0000) == 0 ? std::bit_cast<float>(bits & 0x8000'0000) : x;
  };
  return atomic_update(address, [&](float old) { return flushed(flushed(old) + flushed(value)); });
}

/// Adds 1, 2 or 4 floats to those in global memory, each atomically, and makes them what was there before.
void add_floats(const char* what, void* address, std::span<float> values, Location where);

// What the wrappers of common/ptx/atomic.h do. A release is a fence and an operation that hands over.
inline void red_add(void* address, std::span<const float> values, Location where) {
  float copy[4];
  std::copy(values.begin(), values.end(), copy);
  add_floats("red_add", address, {copy, values.size()}, where);
}
template <typename T>
T load_acquire(const T* address, Location where) {
  poll_memory("load_acquire", where);
  return __atomic_load_n(address, __ATOMIC_SEQ_CST);
}
template <typename T>
void store_release(T* address, T value) {
  memory_fence();
  __atomic_store_n(address, value, __ATOMIC_SEQ_CST);
}
template <typename T>
T add_acq_rel(T* address, T value) {
  memory_fence();
  return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
}

/// The atomic operations that loops wait by.
template <typename T>
T atomic_add(T* address, T value, Location where) {
  if (value == 0) poll_memory("atomicAdd", where);
  return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
}

template <typename T>
T atomic_exchange(T* address, T value, Location where) {
  const T old = __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);
  if (old == value) poll_memory("atomicExch", where);
  return old;
}

template <typename T>
T atomic_compare_exchange(T* address, T expected, T desired, Location where) {
  T old = expected;
  const bool changed =
      __atomic_compare_exchange_n(address, &old, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  if (!changed || old == desired) poll_memory("atomicCAS", where);
  return old;
}

}  // namespace flashbook::sim

inline int atomicAdd(int* address, int value,
                     flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_add(address, value, where);
}
inline unsigned atomicAdd(unsigned* address, unsigned value,
                          flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_add(address, value, where);
}
inline unsigned long long atomicAdd(unsigned long long* address, unsigned long long value,
                                    flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_add(address, value, where);
}
inline float atomicAdd(float* address, float value) {
  if (flashbook::sim::is_global(address)) return flashbook::sim::add_in_global_memory(address, value);
  return flashbook::sim::atomic_update(address, [value](float old) { return old + value; });
}
inline float2 atomicAdd(float2* address, float2 value,
                        flashbook::sim::Location where = flashbook::sim::Location::current()) {
  float both[] = {value.x, value.y};
  flashbook::sim::add_floats("atomicAdd", address, both, where);
  return {both[0], both[1]};
}
inline float4 atomicAdd(float4* address, float4 value,
                        flashbook::sim::Location where = flashbook::sim::Location::current()) {
  float all[] = {value.x, value.y, value.z, value.w};
  flashbook::sim::add_floats("atomicAdd", address, all, where);
  return {all[0], all[1], all[2], all[3]};
}

inline int atomicMax(int* address, int value) {
  return flashbook::sim::atomic_update(address, [value](int old) { return old < value ? value : old; });
}
inline unsigned atomicMax(unsigned* address, unsigned value) {
  return flashbook::sim::atomic_update(address, [value](unsigned old) { return old < value ? value : old; });
}
inline unsigned long long atomicMax(unsigned long long* address, unsigned long long value) {
  return flashbook::sim::atomic_update(address,
                                       [value](unsigned long long old) { return old < value ? value : old; });
}

inline int atomicExch(int* address, int value,
                      flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_exchange(address, value, where);
}
inline unsigned atomicExch(unsigned* address, unsigned value,
                           flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_exchange(address, value, where);
}
inline unsigned long long atomicExch(unsigned long long* address, unsigned long long value,
                                     flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_exchange(address, value, where);
}
inline float atomicExch(float* address, float value) {
  return flashbook::sim::atomic_update(address, [value](float) { return value; });
}

inline int atomicCAS(int* address, int expected, int desired,
                     flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_compare_exchange(address, expected, desired, where);
}
inline unsigned atomicCAS(unsigned* address, unsigned expected, unsigned desired,
                          flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_compare_exchange(address, expected, desired, where);
}
inline unsigned long long atomicCAS(unsigned long long* address, unsigned long long expected,
                                    unsigned long long desired,
                                    flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_compare_exchange(address, expected, desired, where);
}
