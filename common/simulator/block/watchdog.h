/// \file
/// Kernels that never come back, and kernels that touch memory that is not there. Internal to the simulator.
///
/// A thread hands over to the next one when it waits, polls or exits. One that does none of these keeps the
/// OS thread for ever: an endless loop, or a loop that reads a flag in plain or volatile memory, which on a
/// GPU another warp would set. (What polls by mbarrier_try_wait or by atomics hands over, and is counted:
/// Scheduler::wake_pollers.) So a timer of the OS thread ticks. If no thread has had its turn for the set
/// time, the signal's handler, which runs on the stack of the thread that loops, leaves that stack for good.
///
/// The timer counts the time on the clock on the wall, so that a busy machine reports as soon as an idle one.
/// A program that a debugger has stopped is safe, since the thread must have used the processor, too. It
/// needs Linux and glibc; elsewhere such a kernel hangs.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace flashbook::sim {

/// The turn that a thread has: since when, and where the ticks found it.
class LongTurn {
 public:
  /// From the signal's handler: the scheduler has handed out so many turns. Whether the last of them has
  /// taken too long.
  bool tick(uint64_t turns, int seconds);

  /// From a signal's handler: forgets the samples for the one of now.
  void note_place();

  /// ", at kernel.cuh:12-14" if the samples are lines of a loop; ", at tile.cuh:7 from kernel.cuh:12" if it
  /// is in a helper; empty if the program has no debug information.
  std::string describe_loop() const;

 private:
  static constexpr int kSamples = 8, kFrames = 16;
  /// The addresses in a stack, from the inside out; ended by null.
  using Stack = std::array<const void*, kFrames>;

  uint64_t turn_ = 0;
  double began_ = 0, processor_began_ = 0;  // seconds
  int samples_ = 0;
  void sample();

  std::array<Stack, kSamples> stacks_;
};

/// What the processor would not do.
enum class Crash {
  memory,     ///< an access to memory that the process does not have
  alignment,  ///< of a vector, or an address that can be none; the processor does not say which
  stack,      ///< of the thread, which is full
  division    ///< of an integer by zero, or of the least one by -1
};

/// While it lives, a thread of a kernel that makes the processor refuse an instruction ends its block with a
/// report instead of the process with a signal. (AddressSanitizer has a handler of its own.) One at a time.
class CrashGuard {
 public:
  CrashGuard();
  ~CrashGuard();
  CrashGuard(const CrashGuard&) = delete;
  CrashGuard& operator=(const CrashGuard&) = delete;
};

/// While it lives, what a signal interrupts in the calling OS thread needs no room for the handler of a
/// crash: a stack that is full has none. One at a time in an OS thread.
class CrashStack {
 public:
  CrashStack();
  ~CrashStack();
  CrashStack(const CrashStack&) = delete;
  CrashStack& operator=(const CrashStack&) = delete;

 private:
  std::unique_ptr<unsigned char[]> memory_;
};

/// Ticks in the calling OS thread while it lives.
class Watchdog {
 public:
  /// Calls the scheduler's tick() eight times in that many seconds. 0: never.
  explicit Watchdog(int seconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void* timer_ = nullptr;
  bool ticks_ = false;
};

}  // namespace flashbook::sim
