/// \file
/// Threads that poll instead of waiting, and threads that never hand over.
#include <vector>

#include "common/simulator/atomics.h"
#include "common/simulator/scheduler.h"

namespace flashbook::sim {
namespace {

/// Rounds of nothing but polling after which a block is stuck: no kernel polls on purpose for so long.
constexpr int kMaxFruitlessPolls = 1 << 20;

/// Ticks of the watchdog, two in Options::timeout, without a new turn after which a thread is given up. The
/// first of them may come just after the turn began.
constexpr int kMaxQuietTicks = 3;

/// Reads of memory that nobody changed, one after another, after which others get a turn.
constexpr int kPollsBeforeOthersRun = 64;

}  // namespace

/// Lets others run until no other thread can, or until what the current thread polls has made it ready.
void Worker::poll(Wait wait, const char* what, Location where) {
  pollers_.push_back(current_);
  suspend(wait, what, where);
  std::erase(pollers_, current_);
}

/// Lets those who poll try again; false if that has been in vain for too long.
bool Worker::wake_pollers() {
  if (pollers_.empty() || ++fruitless_polls_ > kMaxFruitlessPolls) return false;
  for (const Thread* thread : pollers_) make_ready(thread->warp, 1u << thread->lane);
  return true;
}

/// The current thread has read memory by an atomic operation that changed nothing. It may be waiting for
/// another thread, which must then get its turn.
void Worker::poll_memory(const char* what, Location where) {
  if (++memory_polls_ >= kPollsBeforeOthersRun) poll(Wait::memory_poll, what, where);
}

void poll_memory(const char* what, Location where) {
  if (current_worker) current_worker->poll_memory(what, where);
}

void Worker::tick() {
  quiet_ticks_ = turns_ == seen_turns_ ? quiet_ticks_ + 1 : 0;
  seen_turns_ = turns_;
  given_up_ = quiet_ticks_ >= kMaxQuietTicks;
  if (given_up_) Fiber::leave(*current_->fiber, os_thread_);
}

}  // namespace flashbook::sim
