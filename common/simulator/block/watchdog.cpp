#include "common/simulator/block/watchdog.h"

#include <cstdlib>  // any header of the library says whether it is glibc

#ifdef __GLIBC__

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "common/simulator/block/worker.h"

namespace flashbook::sim {
namespace {

constexpr int kSignal = SIGVTALRM;

void tick(int) {
  if (current_worker) current_worker->scheduler.tick();
}

/// The handler may leave its stack, so it is not to block the signal while it runs: nobody would unblock it.
void install_handler() {
  struct sigaction action = {};
  action.sa_handler = &tick;
  action.sa_flags = SA_NODEFER | SA_RESTART;
  sigaction(kSignal, &action, nullptr);
}

}  // namespace

Watchdog::Watchdog(int seconds) {
  if (seconds == 0) return;
  static const bool installed = (install_handler(), true);
  static_cast<void>(installed);
  struct sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = kSignal;
  event._sigev_un._tid = gettid();
  ticks_ = timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) == 0;
  if (!ticks_) return;  // the system has no more timers: nobody watches this one
  struct itimerspec period = {};
  period.it_interval = {seconds / 2, seconds % 2 * 500'000'000};
  period.it_value = period.it_interval;
  timer_settime(timer_, 0, &period, nullptr);
}

Watchdog::~Watchdog() {
  if (ticks_) timer_delete(timer_);
}

}  // namespace flashbook::sim

#else

namespace flashbook::sim {

Watchdog::Watchdog(int) { static_cast<void>(timer_), static_cast<void>(ticks_); }
Watchdog::~Watchdog() = default;

}  // namespace flashbook::sim

#endif
