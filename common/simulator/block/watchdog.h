/// \file
/// Stops kernels that never return, and kernels that access unmapped memory. Internal to the simulator.
///
/// A thread yields to the next one when it waits, polls or exits. A thread that does none of these never
/// yields: it is in an endless loop, or in a loop that reads a flag in plain or volatile memory, which on a
/// GPU another warp would set. (Polling with mbarrier_try_wait or with atomics does yield, and is counted:
/// Scheduler::wake_pollers.) So a timer of the OS thread ticks. If the turn has not changed within the
/// timeout, the signal handler, which runs on the stack of the looping thread, leaves that stack for good.
///
/// The timer measures wall-clock time, so that a busy machine reports a hang as soon as an idle one does.
/// Stopping a program in a debugger is safe, since the thread must also have used the processor. The watchdog
/// needs Linux and glibc; on other systems such a kernel hangs.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace flashbook::sim {

/// The current turn: its start, and the places where the ticks found its thread.
class LongTurn {
 public:
  /// For the signal handler: `turns` is the number of turns that the scheduler has given. Returns whether the
  /// latest one has taken too long.
  bool tick(uint64_t turns, int seconds);

  /// For a signal handler: replaces the samples with the current place.
  void note_place();

  /// Returns ", at kernel.cuh:12-14" if the samples are lines of a loop; ", at tile.cuh:7 from kernel.cuh:12"
  /// if the loop is in a helper; empty without debug information.
  std::string describe_loop() const;

 private:
  static constexpr int kSamples = 8, kFrames = 16;
  /// The return addresses on a stack, innermost first, terminated by null.
  using Stack = std::array<const void*, kFrames>;

  uint64_t turn_ = 0;
  double began_ = 0, processor_began_ = 0;  // times in seconds
  int samples_ = 0;
  void sample();

  std::array<Stack, kSamples> stacks_;
};

/// The reason why the processor refused an instruction.
enum class Crash {
  memory,     ///< an access to unmapped memory
  alignment,  ///< a misaligned vector, or an address that is not canonical; the processor does not say which
  stack,      ///< the thread's stack is full
  division    ///< an integer division by zero, or of the smallest integer by -1
};

/// While an object of this class exists, an instruction that the processor refuses ends the block with a
/// report instead of killing the process. (AddressSanitizer has its own handler.) Only one such object may
/// exist at a time.
class CrashGuard {
 public:
  CrashGuard();
  ~CrashGuard();
  CrashGuard(const CrashGuard&) = delete;
  CrashGuard& operator=(const CrashGuard&) = delete;
};

/// While an object of this class exists, a crash in the calling OS thread is handled on a separate stack,
/// since a full stack has no room for the handler. Only one such object may exist per OS thread.
class CrashStack {
 public:
  CrashStack();
  ~CrashStack();
  CrashStack(const CrashStack&) = delete;
  CrashStack& operator=(const CrashStack&) = delete;

 private:
  std::unique_ptr<unsigned char[]> memory_;
};

/// Runs a timer in the calling OS thread while the object exists.
class Watchdog {
 public:
  /// Calls the scheduler's tick() eight times within that many seconds; 0 means never.
  explicit Watchdog(int seconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void* timer_ = nullptr;
  bool ticks_ = false;
};

}  // namespace flashbook::sim
