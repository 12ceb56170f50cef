#include "common/simulator/block/fiber.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#ifdef FLASHBOOK_ASAN
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef __APPLE__
#define FLASHBOOK_SYMBOL(name) "_" #name
#else
#define FLASHBOOK_SYMBOL(name) #name
#endif

extern "C" void flashbook_first_frame();

#if defined(__x86_64__)

// The switch ends with a `ret`: lanes of a warp have the same call stack, so the processor's return-address
// predictor is right about the next lane and about all returns above it. A fiber begins in the first frame,
// with its function in r12 and the argument in r13; rbp = 0 ends a debugger's backtrace. (The stack may
// overflow right here, and the report must find the caller.)
asm(".text\n"
    ".p2align 4\n"
    ".globl " FLASHBOOK_SYMBOL(flashbook_switch_stacks) "\n"
    FLASHBOOK_SYMBOL(flashbook_switch_stacks) ":\n"
    "  .cfi_startproc\n"
    "  pushq %rbp\n  .cfi_adjust_cfa_offset 8\n  .cfi_rel_offset %rbp, 0\n"
    "  pushq %rbx\n  .cfi_adjust_cfa_offset 8\n  .cfi_rel_offset %rbx, 0\n"
    "  pushq %r12\n  .cfi_adjust_cfa_offset 8\n  .cfi_rel_offset %r12, 0\n"
    "  pushq %r13\n  .cfi_adjust_cfa_offset 8\n  .cfi_rel_offset %r13, 0\n"
    "  pushq %r14\n  .cfi_adjust_cfa_offset 8\n  .cfi_rel_offset %r14, 0\n"
    "  pushq %r15\n  .cfi_adjust_cfa_offset 8\n  .cfi_rel_offset %r15, 0\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  .cfi_adjust_cfa_offset -8\n  .cfi_restore %r15\n"
    "  popq %r14\n  .cfi_adjust_cfa_offset -8\n  .cfi_restore %r14\n"
    "  popq %r13\n  .cfi_adjust_cfa_offset -8\n  .cfi_restore %r13\n"
    "  popq %r12\n  .cfi_adjust_cfa_offset -8\n  .cfi_restore %r12\n"
    "  popq %rbx\n  .cfi_adjust_cfa_offset -8\n  .cfi_restore %rbx\n"
    "  popq %rbp\n  .cfi_adjust_cfa_offset -8\n  .cfi_restore %rbp\n"
    "  ret\n"
    "  .cfi_endproc\n"
    ".globl " FLASHBOOK_SYMBOL(flashbook_first_frame) "\n"
    FLASHBOOK_SYMBOL(flashbook_first_frame) ":\n"
    "  movq %r13, %rdi\n"
    "  xorl %ebp, %ebp\n"
    "  callq *%r12\n"
    "  ud2\n");

#elif defined(__aarch64__)

// A fiber begins in the first frame, with its function in x19 and the argument in x20; x29 = 0 ends a
// debugger's backtrace.
asm(".text\n"
    ".p2align 4\n"
    ".globl " FLASHBOOK_SYMBOL(flashbook_switch_stacks) "\n"
    FLASHBOOK_SYMBOL(flashbook_switch_stacks) ":\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n"
    "  stp x21, x22, [sp, #16]\n"
    "  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n"
    "  stp x27, x28, [sp, #64]\n"
    "  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n"
    "  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n"
    "  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n"
    "  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n"
    "  ldp x21, x22, [sp, #16]\n"
    "  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n"
    "  ldp x27, x28, [sp, #64]\n"
    "  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n"
    "  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n"
    "  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n"
    ".globl " FLASHBOOK_SYMBOL(flashbook_first_frame) "\n"
    FLASHBOOK_SYMBOL(flashbook_first_frame) ":\n"
    "  mov x0, x20\n"
    "  mov x29, xzr\n"
    "  blr x19\n"
    "  brk #1\n");

#elif defined(FLASHBOOK_FIBERS_BY_ASYNCIFY)

// Binaryen's pass replaces these functions; the linker defines the other two symbols.
#define FLASHBOOK_ASYNCIFY(name) __attribute__((import_module("asyncify"), import_name(name)))
extern "C" {
FLASHBOOK_ASYNCIFY("start_unwind") void flashbook_start_unwind(void* saved);
FLASHBOOK_ASYNCIFY("stop_unwind") void flashbook_stop_unwind();
FLASHBOOK_ASYNCIFY("start_rewind") void flashbook_start_rewind(void* saved);
FLASHBOOK_ASYNCIFY("stop_rewind") void flashbook_stop_rewind();
std::uintptr_t stackSave();
void stackRestore(std::uintptr_t);
}

#endif

namespace flashbook::sim {
namespace {

constexpr std::uintptr_t kStackAlignment = 64;

#if defined(__x86_64__)

/// Builds the initial contents of a stack, which flashbook_switch_stacks pops.
void* first_stack_pointer(std::uintptr_t top, Fiber::Entry function, void* argument) {
  auto* frame = reinterpret_cast<void**>(top) - 9;
  frame[0] = nullptr;                                          // r15
  frame[1] = nullptr;                                          // r14
  frame[2] = argument;                                         // r13
  frame[3] = reinterpret_cast<void*>(function);                // r12
  frame[4] = nullptr;                                          // rbx
  frame[5] = nullptr;                                          // rbp
  frame[6] = reinterpret_cast<void*>(&flashbook_first_frame);  // the return address
  frame[7] = nullptr;  // leaves rsp at top - 16: a multiple of 16, as a call requires
  frame[8] = nullptr;
  return frame;
}

#elif defined(__aarch64__)

/// Builds the initial contents of a stack, which flashbook_switch_stacks loads.
void* first_stack_pointer(std::uintptr_t top, Fiber::Entry function, void* argument) {
  auto* frame = reinterpret_cast<void**>(top) - 20;
  for (int i = 0; i < 20; ++i) frame[i] = nullptr;
  frame[0] = reinterpret_cast<void*>(function);                 // x19
  frame[1] = argument;                                          // x20
  frame[11] = reinterpret_cast<void*>(&flashbook_first_frame);  // x30, the return address
  return frame;
}

#elif defined(FLASHBOOK_FIBERS_BY_ASYNCIFY)

constexpr std::size_t kLocalsBytes = 8 * 1024;
constexpr std::uint64_t kIntact = 0x5ca1ab1e0ddba11;  // guards the end of the stack
Fiber* next_fiber = nullptr;                          // the fiber to continue
bool is_rewinding = false;

#else

/// makecontext passes only ints, so each pointer is split in two.
void call_run(unsigned low, unsigned high, unsigned function_low, unsigned function_high) {
  const auto pointer = [](unsigned low, unsigned high) {
    return std::uintptr_t(low) | std::uint64_t(high) << 32;
  };
  reinterpret_cast<Fiber::Entry>(pointer(function_low, function_high))(
      reinterpret_cast<void*>(pointer(low, high)));
}

#endif

}  // namespace

void Fiber::start(void* stack, std::size_t bytes, Entry entry, void* argument) {
  entry_ = entry;
  argument_ = argument;
#ifdef FLASHBOOK_ASAN
  __asan_unpoison_memory_region(stack, bytes);  // removes the previous fiber's frames from this stack
  stack_ = stack;
  stack_bytes_ = bytes;
#endif
#ifdef FLASHBOOK_FIBERS_BY_HAND
  const std::uintptr_t top = (reinterpret_cast<std::uintptr_t>(stack) + bytes) & ~(kStackAlignment - 1);
  stack_pointer_ = first_stack_pointer(top, &Fiber::run, this);
#elif defined(FLASHBOOK_FIBERS_BY_ASYNCIFY)
  locals_ = static_cast<unsigned char*>(stack);
  std::memcpy(locals_ + kLocalsBytes, &kIntact, sizeof kIntact);
  stack_pointer_ = (reinterpret_cast<std::uintptr_t>(stack) + bytes) & ~(kStackAlignment - 1);
  is_new_ = true;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack;
  context_.uc_stack.ss_size = bytes;
  context_.uc_link = nullptr;
  const auto self = std::uint64_t(reinterpret_cast<std::uintptr_t>(this));
  const auto function = std::uint64_t(reinterpret_cast<std::uintptr_t>(&Fiber::run));
  makecontext(&context_, reinterpret_cast<void (*)()>(&call_run), 4, unsigned(self), unsigned(self >> 32),
              unsigned(function), unsigned(function >> 32));
#endif
}

void Fiber::run(void* fiber) {
#ifdef FLASHBOOK_ASAN
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  auto* self = static_cast<Fiber*>(fiber);
  self->entry_(self->argument_);
  std::abort();  // an entry function never returns
}

#if defined(FLASHBOOK_FIBERS_BY_ASYNCIFY)

/// The OS thread's own computation stays in this call, which runs fibers until one of them switches back. In
/// a fiber, this call returns when the fiber is suspended, and again when it continues.
[[gnu::noinline]] void Fiber::switch_stacks(Fiber& from, Fiber& to) {
  if (!from.locals_) return run_fibers(to);
  suspend(from, to);
}

[[gnu::noinline]] void Fiber::suspend(Fiber& from, Fiber& to) {
  if (is_rewinding) {
    is_rewinding = false;
    flashbook_stop_rewind();
    return;
  }
  from.stack_pointer_ = stackSave();
  if (from.is_full()) throw Full();
  from.saved_ = {from.locals_, from.locals_ + kLocalsBytes};
  next_fiber = &to;
  flashbook_start_unwind(&from.saved_);
}

/// No guard protects the end of a stack here: overflow is detected when the fiber waits.
bool Fiber::is_full() const {
  return stack_pointer_ <= reinterpret_cast<std::uintptr_t>(locals_) + kLocalsBytes ||
         std::memcmp(locals_ + kLocalsBytes, &kIntact, sizeof kIntact) != 0;
}

[[gnu::noinline]] void Fiber::run_fibers(Fiber& first) {
  const std::uintptr_t own = stackSave();
  for (Fiber* fiber = &first; fiber->locals_; fiber = next_fiber) {
    stackRestore(fiber->stack_pointer_);
    if (fiber->is_new_) {
      fiber->is_new_ = false;
    } else {
      is_rewinding = true;
      flashbook_start_rewind(&fiber->saved_);
    }
    fiber->entry_(fiber->argument_);  // returns when the fiber is suspended
    flashbook_stop_unwind();
  }
  stackRestore(own);
}

#endif

#if defined(FLASHBOOK_ASAN)

namespace {

/// A stack in the form that AddressSanitizer expects.
struct Stack {
  const void* bottom;
  std::size_t bytes;
};

/// Returns the stack of the calling OS thread.
Stack own_stack() {
  pthread_attr_t attributes;
  void* bottom = nullptr;
  std::size_t bytes = 0;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &bottom, &bytes);
  pthread_attr_destroy(&attributes);
  return {bottom, bytes};
}

}  // namespace

/// Announces the switch to AddressSanitizer. `fake_stack` receives the state of the suspended fiber; null
/// frees that state.
void Fiber::announce_switch(Fiber& to, void** fake_stack) {
  static thread_local const Stack own = own_stack();  // cached, since finding it is slow
  const Stack target = to.stack_ ? Stack{to.stack_, to.stack_bytes_} : own;
  __sanitizer_start_switch_fiber(fake_stack, target.bottom, target.bytes);
}

void Fiber::switch_to(Fiber& from, Fiber& to) {
  void* fake_stack = nullptr;
  announce_switch(to, &fake_stack);
  switch_stacks(from, to);
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
}

void Fiber::leave(Fiber& from, Fiber& to) {
  announce_switch(to, nullptr);
  switch_stacks(from, to);
  std::abort();
}

#else

void Fiber::leave(Fiber& from, Fiber& to) {
  switch_to(from, to);
  std::abort();
}

#endif

}  // namespace flashbook::sim
