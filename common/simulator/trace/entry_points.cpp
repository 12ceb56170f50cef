/// \file
/// The functions to which -fsanitize=thread inserts calls in a kernel: before loads and stores, and in place
/// of atomics.
///
/// libtsan, which usually defines these functions, is not linked. The return address of a call leads to the
/// source line. Outside a traced block, the calls perform only the operation itself.
#include <cstdint>
#include <cstring>

#include "common/simulator/atomics.h"
#include "common/simulator/block/worker.h"
#include "common/simulator/trace/tracer.h"

namespace {

using flashbook::sim::Access;
using flashbook::sim::current_tracer;
using flashbook::sim::current_worker;

void access(const volatile void* address, std::size_t bytes, Access what, bool aligned,
            const void* return_address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  flashbook::sim::Tracer* tracer = current_tracer;
  if (!tracer) return;
  const int thread = tracer->thread();
  if (tracer->is_local(at)) return tracer->accesses_local(thread, what, at, return_address);
  if (!flashbook::sim::meets(what) && tracer->is_in_recent_array(at))
    tracer->accesses_recent_array(thread, what, at, bytes, aligned, return_address);
  else if (tracer->concerns(at))
    tracer->accesses(thread, what, at, bytes, aligned, return_address);
  else
    tracer->accesses_other(what, at, bytes, return_address);
}

/// A plain, aligned load, which is the most frequent access. (Inlined where `bytes` is constant.)
[[gnu::always_inline]] inline void load(const void* address, std::size_t bytes, const void* return_address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  flashbook::sim::Tracer* tracer = current_tracer;
  if (tracer && !tracer->notes_load(at, bytes, return_address))
    access(address, bytes, Access::load, true, return_address);
}

/// Reports an access to any number of bytes, possibly zero.
void access_all(const void* address, std::size_t bytes, Access what, const void* return_address) {
  if (bytes > 0) access(address, bytes, what, false, return_address);
}

/// Reports a volatile access: a flag between threads that fence; otherwise it synchronises nothing.
void access_volatile(void* address, std::size_t bytes, Access what, const void* return_address) {
  access(address, bytes, what, true, return_address);
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (current_tracer && current_tracer->concerns(at))
    current_tracer->accesses_volatile(current_worker->current_number(), what, at, return_address);
}

/// Notes that the calling thread has seen the value left by an atomic operation or a volatile store. `leaves`
/// means that the thread's own operation does not change the word.
template <typename T>
inline void acquire(const volatile T* address, bool leaves) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  flashbook::sim::Tracer* tracer = current_tracer;
  if (!tracer || !tracer->concerns(at)) return;
  if (leaves)
    tracer->acquires_word_read(current_worker->current_number(), at, sizeof(T));
  else
    tracer->acquires_word(current_worker->current_number(), at);
}

/// Performs an atomic operation; its result depends on the previous value if `kReads`. It publishes before
/// other threads can see its effect, and then acquires whatever others have published. `may_fail`: it may not
/// write. `leaves`: it leaves the word unchanged.
template <bool kReads = true, typename T, typename Operation>
auto update(volatile T* address, const void* return_address, Operation operation, bool may_fail = false,
            bool leaves = false) {
  if constexpr (kReads) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    flashbook::sim::Tracer* tracer = current_tracer;
    if (tracer && tracer->concerns(at))
      tracer->reads_before_update(current_worker->current_number(), at, sizeof(T), return_address);
  }
  if (current_tracer) current_tracer->leaves_word(leaves);
  access(address, sizeof(T), Access::atomic, true, return_address);
  if (!current_tracer) return operation();
  current_tracer->leaves_word(false);
  const auto result =
      current_tracer->changes_word(current_worker->current_number(), address, operation, may_fail);
  acquire(address, leaves);
  return result;
}

/// Loads a word of device memory for an atomic load, or for an operation that leaves the word unchanged;
/// either may take effect before operations that have already run. Returns whether it set `value`. (In shared
/// memory the threads of a block take turns, and see the latest value.)
template <typename T>
bool reads_past(Access what, const volatile T* address, const void* return_address, T& value) {
  flashbook::sim::Tracer* tracer = current_tracer;
  if (!tracer || !tracer->is_of_device(reinterpret_cast<std::uintptr_t>(address))) return false;
  value = tracer->loads_word(current_worker->current_number(), what, address, return_address);
  return true;
}

/// Adding to an integer in device memory, or setting a bit, may claim a tile: first give other blocks a turn.
inline void meet_other_blocks(const volatile void* address) {
  flashbook::sim::Tracer* tracer = current_tracer;
  if (tracer && tracer->is_of_device(reinterpret_cast<std::uintptr_t>(address)))
    current_worker->meets_other_blocks();
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// Each macro defines a family of functions whose names end in the number of bytes or bits.

#define FLASHBOOK_ACCESS(bytes)                                                                 \
  void __tsan_read##bytes(void* address) { load(address, bytes, __builtin_return_address(0)); } \
  void __tsan_write##bytes(void* address) {                                                     \
    access(address, bytes, Access::store, true, __builtin_return_address(0));                   \
  }                                                                                             \
  void __tsan_unaligned_read##bytes(void* address) {                                            \
    access(address, bytes, Access::load, false, __builtin_return_address(0));                   \
  }                                                                                             \
  void __tsan_unaligned_write##bytes(void* address) {                                           \
    access(address, bytes, Access::store, false, __builtin_return_address(0));                  \
  }
FLASHBOOK_ACCESS(1)
FLASHBOOK_ACCESS(2)
FLASHBOOK_ACCESS(4)
FLASHBOOK_ACCESS(8)
FLASHBOOK_ACCESS(16)
#undef FLASHBOOK_ACCESS

void __tsan_read_range(void* address, std::size_t bytes) {
  access(address, bytes, Access::load, false, __builtin_return_address(0));
}
void __tsan_write_range(void* address, std::size_t bytes) {
  access(address, bytes, Access::store, false, __builtin_return_address(0));
}

// A kernel's copies and fills of whole ranges; instrumented.h redirects the kernel's calls to these.
void* __tsan_memcpy(void* target, const void* source, std::size_t bytes) {
  access_all(source, bytes, Access::load, __builtin_return_address(0));
  access_all(target, bytes, Access::store, __builtin_return_address(0));
  return std::memcpy(target, source, bytes);
}
void* __tsan_memmove(void* target, const void* source, std::size_t bytes) {
  access_all(source, bytes, Access::load, __builtin_return_address(0));
  access_all(target, bytes, Access::store, __builtin_return_address(0));
  return std::memmove(target, source, bytes);
}
void* __tsan_memset(void* target, int value, std::size_t bytes) {
  access_all(target, bytes, Access::store, __builtin_return_address(0));
  return std::memset(target, value, bytes);
}

#define FLASHBOOK_VOLATILE(bytes)                                                        \
  void __tsan_volatile_read##bytes(void* address) {                                      \
    flashbook::sim::poll_memory("volatile load", {}); /* others run before it reads */   \
    access_volatile(address, bytes, Access::volatile_load, __builtin_return_address(0)); \
  }                                                                                      \
  void __tsan_volatile_write##bytes(void* address) {                                     \
    flashbook::sim::change_memory();                                                     \
    access_volatile(address, bytes, Access::atomic, __builtin_return_address(0));        \
  }                                                                                      \
  void __tsan_unaligned_volatile_read##bytes(void* address) {                            \
    access(address, bytes, Access::load, false, __builtin_return_address(0));            \
  }                                                                                      \
  void __tsan_unaligned_volatile_write##bytes(void* address) {                           \
    access(address, bytes, Access::store, false, __builtin_return_address(0));           \
  }
FLASHBOOK_VOLATILE(1)
FLASHBOOK_VOLATILE(2)
FLASHBOOK_VOLATILE(4)
FLASHBOOK_VOLATILE(8)
FLASHBOOK_VOLATILE(16)
#undef FLASHBOOK_VOLATILE

#define FLASHBOOK_UPDATE(bits, name, builtin, reads)                                                         \
  uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t* address, uint##bits##_t value, int) { \
    return update<reads>(address, __builtin_return_address(0),                                               \
                         [&] { return builtin(address, value, __ATOMIC_SEQ_CST); });                         \
  }
#define FLASHBOOK_UPDATE_OR_LOOK(bits, name, builtin)                                                        \
  uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t* address, uint##bits##_t value, int) { \
    meet_other_blocks(address);                                                                              \
    if (uint##bits##_t past;                                                                                 \
        value == 0 && reads_past(Access::atomic, address, __builtin_return_address(0), past))                \
      return past;                                                                                           \
    return update(                                                                                           \
        address, __builtin_return_address(0), [&] { return builtin(address, value, __ATOMIC_SEQ_CST); },     \
        false, value == 0);                                                                                  \
  }
#define FLASHBOOK_ATOMIC(bits)                                                                        \
  uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t* address, int order) {      \
    uint##bits##_t past;                                                                              \
    if (order != __ATOMIC_RELAXED &&                                                                  \
        reads_past(Access::volatile_load, address, __builtin_return_address(0), past))                \
      return past;                                                                                    \
    if (order != __ATOMIC_RELAXED) /* that is how a loop by compare-and-swap begins */                \
      access(address, bits / 8, Access::volatile_load, true, __builtin_return_address(0));            \
    const auto value = __atomic_load_n(address, __ATOMIC_SEQ_CST);                                    \
    if (order != __ATOMIC_RELAXED) acquire(address, true);                                            \
    return value;                                                                                     \
  }                                                                                                   \
  void __tsan_atomic##bits##_store(volatile uint##bits##_t* address, uint##bits##_t value, int) {     \
    access(address, bits / 8, Access::atomic, true, __builtin_return_address(0));                     \
    const auto operation = [&] { return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST); };     \
    if (current_tracer)                                                                               \
      current_tracer->changes_word(current_worker->current_number(), address, operation);             \
    else                                                                                              \
      operation();                                                                                    \
  }                                                                                                   \
  FLASHBOOK_UPDATE(bits, exchange, __atomic_exchange_n, false)                                        \
  FLASHBOOK_UPDATE_OR_LOOK(bits, fetch_add, __atomic_fetch_add)                                       \
  /* clang++ makes this of an addition of 0 */                                                        \
  FLASHBOOK_UPDATE_OR_LOOK(bits, fetch_or, __atomic_fetch_or)                                         \
  FLASHBOOK_UPDATE(bits, fetch_sub, __atomic_fetch_sub, true)                                         \
  FLASHBOOK_UPDATE(bits, fetch_and, __atomic_fetch_and, true)                                         \
  FLASHBOOK_UPDATE(bits, fetch_xor, __atomic_fetch_xor, true)                                         \
  int __tsan_atomic##bits##_compare_exchange_strong(                                                  \
      volatile uint##bits##_t* address, uint##bits##_t* expected, uint##bits##_t desired, int, int) { \
    return update(                                                                                    \
        address, __builtin_return_address(0),                                                         \
        [&] {                                                                                         \
          return __atomic_compare_exchange_n(address, expected, desired, false, __ATOMIC_SEQ_CST,     \
                                             __ATOMIC_SEQ_CST);                                       \
        },                                                                                            \
        true);                                                                                        \
  }                                                                                                   \
  int __tsan_atomic##bits##_compare_exchange_weak(                                                    \
      volatile uint##bits##_t* address, uint##bits##_t* expected, uint##bits##_t desired, int, int) { \
    return update(                                                                                    \
        address, __builtin_return_address(0),                                                         \
        [&] {                                                                                         \
          return __atomic_compare_exchange_n(address, expected, desired, false, __ATOMIC_SEQ_CST,     \
                                             __ATOMIC_SEQ_CST);                                       \
        },                                                                                            \
        true);                                                                                        \
  }                                                                                                   \
  uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                                          \
      volatile uint##bits##_t* address, uint##bits##_t expected, uint##bits##_t desired, int, int) {  \
    return update(                                                                                    \
        address, __builtin_return_address(0),                                                         \
        [&] {                                                                                         \
          __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_SEQ_CST,           \
                                      __ATOMIC_SEQ_CST);                                              \
          return expected;                                                                            \
        },                                                                                            \
        true);                                                                                        \
  }
FLASHBOOK_ATOMIC(8)
FLASHBOOK_ATOMIC(16)
FLASHBOOK_ATOMIC(32)
FLASHBOOK_ATOMIC(64)
#undef FLASHBOOK_ATOMIC
#undef FLASHBOOK_UPDATE
#undef FLASHBOOK_UPDATE_OR_LOOK

void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
