/// \file
/// Fibers: computations that one OS thread runs in turn, each on a stack of its own.
///
/// A switch is a function call that returns on another stack: it saves the registers that a callee must keep,
/// exchanges the stack pointer, and takes the other side's registers. That takes a few nanoseconds, and the
/// two system calls of ucontext twenty times as long; ucontext serves processors that are neither x86-64 nor
/// arm64. WebAssembly keeps the frames of calls where nobody can reach them: there a fiber returns from all
/// of them, saving their locals, and makes the calls again when it goes on. Binaryen's pass --asyncify writes
/// both into the functions that may wait (docs/web).
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

/// Whether the system has more than one OS thread. A page has one: what would run beside something else runs
/// in turn with it.
#ifdef FLASHBOOK_FIBERS_BY_ASYNCIFY
constexpr bool kHasOsThreads = false;
#else
constexpr bool kHasOsThreads = true;
#endif

/// A computation that is running or suspended. A fiber stays on the OS thread that started it.
class Fiber {
 public:
  /// What a fiber runs. It must not return: it leaves.
  using Entry = void (*)(void* argument);

  /// Thrown where a fiber would be suspended and has used more than its stack: in WebAssembly, where nothing
  /// stops it before.
  struct Full {};

  /// The calling OS thread's own computation, or one that `start` will set up.
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Makes this fiber begin `entry(argument)` on the given stack when it is first switched to. Whatever it
  /// was before is dropped: its frames are not unwound.
  void start(void* stack, std::size_t bytes, Entry entry, void* argument);

  /// Suspends `from`, which is running, and continues `to`. Returns when something switches to `from` again.
  static void switch_to(Fiber& from, Fiber& to);

  /// Switches for good: `from` will never be continued, but may be started anew.
  [[noreturn]] static void leave(Fiber& from, Fiber& to);

 private:
  [[noreturn]] static void run(void* fiber);
  static void switch_stacks(Fiber& from, Fiber& to);

#if defined(FLASHBOOK_FIBERS_BY_HAND)
  void* stack_pointer_ = nullptr;  // while suspended; the registers to keep lie there
#elif defined(FLASHBOOK_FIBERS_BY_ASYNCIFY)
  static void suspend(Fiber& from, Fiber& to);
  static void run_fibers(Fiber& first);
  bool is_full() const;

  /// Where the pass saves locals: from `next` on, and not beyond `end`.
  struct Saved {
    void* next;
    void* end;
  } saved_{};
  unsigned char* locals_ = nullptr;  // the stack's first bytes; null: the OS thread's own computation
  std::uintptr_t stack_pointer_ = 0;
  bool is_new_ = false;
#else
  ucontext_t context_{};
#endif
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
#ifdef FLASHBOOK_ASAN
  static void announce_switch(Fiber& to, void** fake_stack);
  const void* stack_ = nullptr;  // null: the OS thread's own
  std::size_t stack_bytes_ = 0;
#endif
};

/// Where the stack of the caller ends now. (A frame's address would cost the frame.)
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
