#include "common/simulator/block/turns.h"

#include <utility>

namespace flashbook::sim {

void Turns::enter() {
  const std::lock_guard lock(mutex_);
  const bool runs = free_ > 0;
  if (runs)
    --free_;
  else
    waiting_.push_back(int(has_turn_.size()));
  has_turn_.emplace_back(runs ? 1 : 0);
}

void Turns::withdraw() {
  const std::lock_guard lock(mutex_);
  has_turn_.pop_back();
  if (std::erase(waiting_, int(has_turn_.size())) == 0) ++free_;
}

void Turns::wait(int who) {
  std::unique_lock lock(mutex_);
  auto& mine = has_turn_[std::size_t(who)];
  lock.unlock();
  mine.acquire();
}

void Turns::hand_over(int who) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) return;
    const int next = std::exchange(waiting_[std::size_t(random_.below(int(waiting_.size())))], who);
    has_turn_[std::size_t(next)].release();
  }
  wait(who);
}

void Turns::leave() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) {
    ++free_;
    return;
  }
  const auto next = waiting_.begin() + random_.below(int(waiting_.size()));
  has_turn_[std::size_t(*next)].release();
  waiting_.erase(next);
}

}  // namespace flashbook::sim
