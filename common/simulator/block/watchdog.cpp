#include "common/simulator/block/watchdog.h"

#include <cstdlib>  // any library header reveals whether this is glibc

#ifdef __GLIBC__

#include <signal.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <vector>

#include "common/simulator/block/worker.h"
#include "common/simulator/source_lines.h"

namespace flashbook::sim {
namespace {

constexpr int kSignal = SIGVTALRM;
constexpr int kTicks = 8;  ///< number of ticks per timeout

/// The fraction of the timeout during which the thread must have used the processor. Single-stepping in a
/// debugger uses less, and a thread's share of a busy machine is larger.
constexpr double kLeastShare = 1.0 / 32;

double seconds_on(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

/// Filled in by the unwinder once it has left the signal handler's frames.
struct Walk {
  const void** next;
  const void** end;
  bool interrupted = false;
};

_Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) {
  Walk& walk = *static_cast<Walk*>(argument);
  int is_exact = 0;  // whether it is the address of the interrupted instruction, not a return address
  const auto address = _Unwind_GetIPInfo(context, &is_exact);
  walk.interrupted = walk.interrupted || is_exact;
  if (walk.interrupted) *walk.next++ = reinterpret_cast<const void*>(is_exact ? address : address - 1);
  return walk.next == walk.end ? _URC_END_OF_STACK : _URC_NO_REASON;
}

std::string file_of(const std::string& place) { return place.substr(0, place.find(':')); }
int line_of(const std::string& place) { return std::atoi(place.c_str() + place.find(':') + 1); }

void tick(int) {
  if (current_worker) current_worker->scheduler.tick();
}

/// The handler may leave its stack without returning, so the signal must not be blocked in the handler.
void install_handler() {
  struct sigaction action = {};
  action.sa_handler = &tick;
  action.sa_flags = SA_NODEFER | SA_RESTART;
  sigaction(kSignal, &action, nullptr);
}

}  // namespace

bool LongTurn::tick(uint64_t turns, int seconds) {
  const double now = seconds_on(CLOCK_MONOTONIC), processor = seconds_on(CLOCK_THREAD_CPUTIME_ID);
  if (turns != turn_) {
    turn_ = turns;
    began_ = now;
    processor_began_ = processor;
    samples_ = 0;
    return false;
  }
  sample();
  return now - began_ >= seconds && processor - processor_began_ >= kLeastShare * seconds;
}

void LongTurn::note_place() {
  samples_ = 0;
  sample();
}

/// Samples the stack that the signal has interrupted.
void LongTurn::sample() {
  Stack& stack = stacks_[std::size_t(samples_++ % kSamples)];
  stack.fill(nullptr);
  Walk walk{stack.data(), stack.data() + kFrames};
  _Unwind_Backtrace(&visit, &walk);
}

std::string LongTurn::describe_loop() const {
  std::vector<std::uintptr_t> offsets;
  for (int i = 0; i < std::min(samples_, kSamples); ++i)
    for (const void* code : stacks_[std::size_t(i)])
      if (code) offsets.push_back(offset_in_program(code));
  const auto lines = source_lines_of_code(offsets);

  std::string innermost, outermost;  // lines of the kernel in the first stack
  int first = 0, last = 0;           // lines of all stacks that end in the same file
  for (int i = 0; i < std::min(samples_, kSamples); ++i) {
    std::vector<std::string> stack;
    for (const void* code : stacks_[std::size_t(i)]) {
      const auto known = code ? lines.find(offset_in_program(code)) : lines.end();
      if (known != lines.end()) stack.insert(stack.end(), known->second.begin(), known->second.end());
    }
    if (stack.empty()) continue;
    const int line = line_of(stack.front());
    if (innermost.empty()) {
      innermost = stack.front();
      outermost = stack.back();
      first = last = line;
    } else if (file_of(stack.front()) == file_of(innermost)) {
      first = std::min(first, line);
      last = std::max(last, line);
    }
  }
  if (innermost.empty()) return "";
  return ", at " + file_of(innermost) + ":" + std::to_string(first) +
         (last > first ? "-" + std::to_string(last) : "") +
         (file_of(outermost) != file_of(innermost) ? " from " + outermost : "");
}

#ifndef FLASHBOOK_ASAN
namespace {

constexpr std::array kCrashes{SIGSEGV, SIGBUS, SIGFPE};
std::array<struct sigaction, kCrashes.size()> handlers_before;

void crash(int signal, siginfo_t* info, void*) {
  // x86 reports no address for a misaligned or non-canonical access.
  const bool is_of_alignment = (signal == SIGSEGV && info->si_code == SI_KERNEL && !info->si_addr) ||
                               (signal == SIGBUS && info->si_code == BUS_ADRALN);
  if (current_worker)
    current_worker->scheduler.crash(signal == SIGFPE  ? Crash::division
                                    : is_of_alignment ? Crash::alignment
                                                      : Crash::memory,
                                    info->si_addr);
  // The kernel did not cause this fault: retrying the instruction invokes the previous handler.
  for (std::size_t i = 0; i < kCrashes.size(); ++i)
    if (kCrashes[i] == signal) sigaction(signal, &handlers_before[i], nullptr);
}

}  // namespace

CrashGuard::CrashGuard() {
  struct sigaction action = {};
  action.sa_sigaction = &crash;
  action.sa_flags = SA_NODEFER | SA_SIGINFO | SA_ONSTACK;
  for (std::size_t i = 0; i < kCrashes.size(); ++i) sigaction(kCrashes[i], &action, &handlers_before[i]);
}

CrashGuard::~CrashGuard() {
  for (std::size_t i = 0; i < kCrashes.size(); ++i) sigaction(kCrashes[i], &handlers_before[i], nullptr);
}

CrashStack::CrashStack() {
  constexpr std::size_t kBytes = 128 * 1024;  // the handler unwinds the full stack
  memory_ = std::make_unique_for_overwrite<unsigned char[]>(kBytes);
  stack_t stack = {};
  stack.ss_sp = memory_.get();
  stack.ss_size = kBytes;
  sigaltstack(&stack, nullptr);
}

CrashStack::~CrashStack() {
  stack_t none = {};
  none.ss_flags = SS_DISABLE;
  sigaltstack(&none, nullptr);
}
#else
CrashGuard::CrashGuard() = default;
CrashGuard::~CrashGuard() {}
CrashStack::CrashStack() = default;
CrashStack::~CrashStack() = default;
#endif

Watchdog::Watchdog(int seconds) {
  if (seconds == 0) return;
  static const bool installed = (install_handler(), true);
  static_cast<void>(installed);
  struct sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = kSignal;
  event._sigev_un._tid = gettid();
  ticks_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  if (!ticks_) return;  // the system has no more timers, so this kernel runs unwatched
  struct itimerspec period = {};
  period.it_interval = {seconds / kTicks, seconds % kTicks * (1'000'000'000 / kTicks)};
  period.it_value = period.it_interval;
  timer_settime(timer_, 0, &period, nullptr);
}

Watchdog::~Watchdog() {
  if (ticks_) timer_delete(timer_);
}

}  // namespace flashbook::sim

#else

namespace flashbook::sim {

bool LongTurn::tick(uint64_t, int) { return false; }
void LongTurn::note_place() {}
std::string LongTurn::describe_loop() const { return ""; }
CrashGuard::CrashGuard() = default;
CrashGuard::~CrashGuard() {}
CrashStack::CrashStack() = default;
CrashStack::~CrashStack() = default;
Watchdog::Watchdog(int) { static_cast<void>(timer_), static_cast<void>(ticks_); }
Watchdog::~Watchdog() = default;

}  // namespace flashbook::sim

#endif
