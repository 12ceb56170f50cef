/// \file
/// Fibers: computations that take turns on one OS thread, each with its own stack.
///
/// A switch is a function call that returns on another stack: it saves the callee-saved registers, exchanges
/// the stack pointer, and restores the other side's registers. That takes a few nanoseconds; the two system
/// calls of ucontext take twenty times as long, so ucontext is used only on processors other than x86-64 and
/// arm64. WebAssembly code cannot access its call frames: a fiber returns from all of its calls, saving their
/// locals, and repeats the calls when it continues. Binaryen's --asyncify pass adds the code for both to
/// functions that may wait (docs/web).
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) || defined(__aarch64__)
#define FLASHBOOK_FIBERS_BY_HAND 1
#elif defined(__EMSCRIPTEN__)
#define FLASHBOOK_FIBERS_BY_ASYNCIFY 1
#else
#include <ucontext.h>
#endif

// AddressSanitizer must be told which stack is in use.
#if defined(__SANITIZE_ADDRESS__)
#define FLASHBOOK_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FLASHBOOK_ASAN 1
#endif
#endif

namespace flashbook::sim {

/// Whether several OS threads can run. A web page has only one, on which all computations take turns.
#ifdef FLASHBOOK_FIBERS_BY_ASYNCIFY
constexpr bool kHasOsThreads = false;
#else
constexpr bool kHasOsThreads = true;
#endif

/// A computation that is running or suspended. A fiber stays on the OS thread that started it.
class Fiber {
 public:
  /// The function that a fiber runs. It must call leave() instead of returning.
  using Entry = void (*)(void* argument);

  /// Thrown when a fiber that has overflowed its stack is about to be suspended: in WebAssembly the overflow
  /// cannot be detected earlier.
  struct Full {};

  /// Represents the calling OS thread's own computation, or a fiber that `start` will set up.
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Sets up this fiber to call `entry(argument)` on the given stack when it is first switched to. Its
  /// previous computation is dropped without unwinding its frames.
  void start(void* stack, std::size_t bytes, Entry entry, void* argument);

  /// Suspends `from`, which is running, and continues `to`. Returns when `from` is continued.
  static void switch_to(Fiber& from, Fiber& to);

  /// Switches permanently: `from` is never continued, but may be started again.
  [[noreturn]] static void leave(Fiber& from, Fiber& to);

 private:
  [[noreturn]] static void run(void* fiber);
  static void switch_stacks(Fiber& from, Fiber& to);

#if defined(FLASHBOOK_FIBERS_BY_HAND)
  void* stack_pointer_ = nullptr;  // valid while suspended; the saved registers are on the stack
#elif defined(FLASHBOOK_FIBERS_BY_ASYNCIFY)
  static void suspend(Fiber& from, Fiber& to);
  static void run_fibers(Fiber& first);
  bool is_full() const;

  /// The memory, from `next` up to `end`, in which the pass saves locals.
  struct Saved {
    void* next;
    void* end;
  } saved_{};
  unsigned char* locals_ = nullptr;  // start of the stack; null for the OS thread's own computation
  std::uintptr_t stack_pointer_ = 0;
  bool is_new_ = false;
#else
  ucontext_t context_{};
#endif
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
#ifdef FLASHBOOK_ASAN
  static void announce_switch(Fiber& to, void** fake_stack);
  const void* stack_ = nullptr;  // null for the OS thread's own stack
  std::size_t stack_bytes_ = 0;
#endif
};

/// Returns the caller's stack pointer. (Taking a frame's address would require a frame.)
inline std::uintptr_t stack_pointer() {
  std::uintptr_t here;
#if defined(__x86_64__)
  asm("movq %%rsp, %0" : "=r"(here));
#elif defined(__aarch64__)
  asm("mov %0, sp" : "=r"(here));
#else
  here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
#endif
  return here;
}

#ifdef FLASHBOOK_FIBERS_BY_HAND
extern "C" void flashbook_switch_stacks(void** save_stack_pointer, void* load_stack_pointer);
inline void Fiber::switch_stacks(Fiber& from, Fiber& to) {
  flashbook_switch_stacks(&from.stack_pointer_, to.stack_pointer_);
}
#elif !defined(FLASHBOOK_FIBERS_BY_ASYNCIFY)
inline void Fiber::switch_stacks(Fiber& from, Fiber& to) { swapcontext(&from.context_, &to.context_); }
#endif

#ifndef FLASHBOOK_ASAN
inline void Fiber::switch_to(Fiber& from, Fiber& to) { switch_stacks(from, to); }
#endif

}  // namespace flashbook::sim
