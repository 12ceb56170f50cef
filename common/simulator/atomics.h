/// \file
/// Atomic operations. Blocks of one grid run on several OS threads, so these are atomic for the host too.
#pragma once
#include <bit>
#include <cstdint>

namespace flashbook::sim {

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

}  // namespace flashbook::sim

inline int atomicAdd(int* address, int value) { return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST); }
inline unsigned atomicAdd(unsigned* address, unsigned value) {
  return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
}
inline unsigned long long atomicAdd(unsigned long long* address, unsigned long long value) {
  return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
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

inline int atomicExch(int* address, int value) {
  return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);
}
inline unsigned atomicExch(unsigned* address, unsigned value) {
  return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);
}
inline unsigned long long atomicExch(unsigned long long* address, unsigned long long value) {
  return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);
}
inline float atomicExch(float* address, float value) {
  return flashbook::sim::atomic_update(address, [value](float) { return value; });
}

inline int atomicCAS(int* address, int expected, int desired) {
  __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
inline unsigned atomicCAS(unsigned* address, unsigned expected, unsigned desired) {
  __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
inline unsigned long long atomicCAS(unsigned long long* address, unsigned long long expected,
                                    unsigned long long desired) {
  __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
