/// \file
/// Kernels that never come back. Internal to the simulator.
///
/// A thread hands over to the next one when it waits, polls or exits. One that does none of these keeps the
/// OS thread for ever: an endless loop, or a loop that reads a flag in plain or volatile memory, which on a
/// GPU another warp would set. (What polls by mbarrier_try_wait or by atomics hands over, and is counted:
/// Scheduler::wake_pollers.) So a timer of the OS thread ticks. If no thread has had its turn for the set
/// time, the signal's handler, which runs on the stack of the thread that loops, leaves that stack for good.
///
/// The timer counts processor time: neither a busy machine nor a debugger that stops the program makes it
/// tick. It needs Linux and glibc; elsewhere such a kernel hangs.
#pragma once

namespace flashbook::sim {

/// Ticks in the calling OS thread while it lives.
class Watchdog {
 public:
  /// Calls the scheduler's tick() about twice in that many seconds of the OS thread's processor time. 0:
  /// never.
  explicit Watchdog(int seconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void* timer_ = nullptr;
  bool ticks_ = false;
};

}  // namespace flashbook::sim
