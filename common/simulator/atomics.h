/// \file
/// Atomic operations. Blocks of one grid run on several OS threads, so these are atomic for the host too.
#pragma once
#include <bit>
#include <cstdint>

#include "common/simulator/location.h"

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
  return flashbook::sim::atomic_update(address, [value](float old) { return old + value; });
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
