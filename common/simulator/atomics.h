/// \file
/// Atomic operations. The blocks of a grid run on several OS threads, so these are atomic on the host as
/// well.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <type_traits>

#include "common/simulator/barrier.h"
#include "common/simulator/location.h"
#include "common/simulator/memory.h"
#include "common/simulator/vector_types.h"

namespace flashbook::sim {

/// Notes that the calling thread has read memory with an operation that changed nothing, as a loop does while
/// it waits for another thread. After several such reads in a row, other threads get a turn.
void poll_memory(const char* what, Location where);
/// Notes that the calling thread has changed memory that another thread may be waiting for.
void change_memory();
/// Notes that the calling thread has added to an integer that another thread may be waiting for. Throws Error
/// if the block has done nothing else for a long time.
void change_counter(const void* address, const char* what, Location where);

/// Replaces *address by update(*address) and returns the previous value.
template <typename T, typename Update>
T atomic_update(T* address, Update update) {
  T old;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  T next = update(old);
  while (!__atomic_compare_exchange(address, &old, &next, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
    next = update(old);
  return old;
}

/// Adds floats like atomicAdd and red in global memory: a subnormal argument or sum becomes 0 of the same
/// sign (PTX ISA, atom). TMA and shared memory keep subnormals: golden_h200.txt.
inline float add_in_global_memory(float* address, float value) {
  const auto flushed = [](float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    return (bits & 0x7f80'0000) == 0 ? std::bit_cast<float>(bits & 0x8000'0000) : x;
  };
  return atomic_update(address, [&](float old) { return flushed(flushed(old) + flushed(value)); });
}

/// Atomically adds each of 1, 2 or 4 floats to global memory and replaces them with the previous values.
void add_floats(const char* what, void* address, std::span<float> values, Location where);

// The implementation of the wrappers in common/ptx/atomic.h. A release is a fence followed by an atomic
// operation.
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
  change_memory();
}
template <typename T>
T add_acq_rel(T* address, T value) {
  memory_fence();
  const T old = __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
  change_memory();
  return old;
}

/// The types that CUDA's integer atomics accept.
template <typename T>
concept AtomicInteger =
    std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long>;
/// The types that atomicMax and atomicMin accept.
template <typename T>
concept OrderedInteger = AtomicInteger<T> || std::is_same_v<T, long long>;

/// Like atomic_update, for operations that a loop may use to poll.
template <typename T, typename Update>
T atomic_change(const char* what, T* address, Update update, Location where) {
  const T old = atomic_update(address, update);
  if (update(old) == old)
    poll_memory(what, where);
  else
    change_memory();
  return old;
}

/// The atomic operations that loops use to poll.
template <typename T>
T atomic_add(T* address, T value, Location where) {
  if (value == 0) poll_memory("atomicAdd", where);
  const T old = __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
  if (value != 0) change_counter(address, "atomicAdd", where);
  return old;
}

template <typename T>
T atomic_exchange(T* address, T value, Location where) {
  const T old = __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);
  if (old == value)
    poll_memory("atomicExch", where);
  else
    change_memory();
  return old;
}

template <typename T>
T atomic_compare_exchange(T* address, T expected, T desired, Location where) {
  T old = expected;
  const bool changed =
      __atomic_compare_exchange_n(address, &old, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  if (!changed || old == desired)
    poll_memory("atomicCAS", where);
  else
    change_memory();
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
inline double atomicAdd(double* address, double value) {
  return flashbook::sim::atomic_update(address, [value](double old) { return old + value; });
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

template <flashbook::sim::OrderedInteger T>
T atomicMax(T* address, std::type_identity_t<T> value,
            flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_change(
      "atomicMax", address, [value](T old) { return old < value ? value : old; }, where);
}
template <flashbook::sim::OrderedInteger T>
T atomicMin(T* address, std::type_identity_t<T> value,
            flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_change(
      "atomicMin", address, [value](T old) { return value < old ? value : old; }, where);
}
template <flashbook::sim::AtomicInteger T>
T atomicAnd(T* address, std::type_identity_t<T> value,
            flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_change(
      "atomicAnd", address, [value](T old) { return T(old & value); }, where);
}
template <flashbook::sim::AtomicInteger T>
T atomicOr(T* address, std::type_identity_t<T> value,
           flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_change(
      "atomicOr", address, [value](T old) { return T(old | value); }, where);
}
template <flashbook::sim::AtomicInteger T>
T atomicXor(T* address, std::type_identity_t<T> value,
            flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_change(
      "atomicXor", address, [value](T old) { return T(old ^ value); }, where);
}

inline int atomicSub(int* address, int value,
                     flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_add(address, int(0u - unsigned(value)), where);
}
inline unsigned atomicSub(unsigned* address, unsigned value,
                          flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_add(address, 0u - value, where);
}
/// Counts up to `limit`, then starts again from 0.
inline unsigned atomicInc(unsigned* address, unsigned limit,
                          flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_change(
      "atomicInc", address, [limit](unsigned old) { return old >= limit ? 0u : old + 1; }, where);
}
/// Counts down to 0, then starts again from `limit`.
inline unsigned atomicDec(unsigned* address, unsigned limit,
                          flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_change(
      "atomicDec", address, [limit](unsigned old) { return old == 0 || old > limit ? limit : old - 1; },
      where);
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
  auto* bits = reinterpret_cast<uint32_t*>(address);
  return std::bit_cast<float>(__atomic_exchange_n(bits, std::bit_cast<uint32_t>(value), __ATOMIC_SEQ_CST));
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
inline unsigned short atomicCAS(unsigned short* address, unsigned short expected, unsigned short desired,
                                flashbook::sim::Location where = flashbook::sim::Location::current()) {
  return flashbook::sim::atomic_compare_exchange(address, expected, desired, where);
}

// Atomics of block and system scope: every atomic here is atomic for all threads.
#define atomicAdd_block atomicAdd
#define atomicSub_block atomicSub
#define atomicMax_block atomicMax
#define atomicMin_block atomicMin
#define atomicAnd_block atomicAnd
#define atomicOr_block atomicOr
#define atomicXor_block atomicXor
#define atomicExch_block atomicExch
#define atomicCAS_block atomicCAS
#define atomicAdd_system atomicAdd
#define atomicSub_system atomicSub
#define atomicMax_system atomicMax
#define atomicMin_system atomicMin
#define atomicAnd_system atomicAnd
#define atomicOr_system atomicOr
#define atomicXor_system atomicXor
#define atomicExch_system atomicExch
#define atomicCAS_system atomicCAS
