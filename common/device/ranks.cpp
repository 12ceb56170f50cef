#include "common/device/ranks.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "common/concat.h"
#include "common/device/backend.h"

namespace flashbook::device {
namespace {

/// Thrown by a rank that ends because another rank has failed.
struct GivenUp {};

void require_rank(int rank, int count) {
  if (rank < 0 || rank >= count) throw UsageError("there is no rank ", rank, ": there are 0 to ", count - 1);
}

/// A message in transit. Its sender waits for `landed`.
struct Sent {
  Message message;
  Event ready;  ///< recorded when the message's memory has been written
  bool received = false;
  Event landed;
};

/// The state that all ranks of a run share.
class Meeting {
 public:
  Meeting(int count, Turns turns)
      : count_(count),
        turns_(turns),
        over_(std::size_t(count)),
        waits_for_(std::size_t(count)),
        seen_(std::size_t(count)),
        sent_(std::size_t(count) * count) {}

  int count() const { return count_; }

  void run(int rank, const std::function<void()>& body) {
    std::unique_lock lock(mutex_);
    if (turns_ == Turns::one_at_a_time) await_turn(rank, lock);
    lock.unlock();
    std::exception_ptr error;
    try {
      use_device(device_of_rank(rank));
      body();
    } catch (const GivenUp&) {
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !error_) error_ = error;
    over_[std::size_t(rank)] = true;
    waits_for_[std::size_t(rank)].clear();
    in_vain_ = 0;
    ++changes_;
    pass_turn(rank);
  }

  void exchange(int rank, Queue& queue, const std::vector<Message>& sends,
                const std::vector<Message>& receives) {
    for (const auto* messages : {&sends, &receives})
      for (const Message& message : *messages) require_rank(message.rank, count_);
    std::unique_lock lock(mutex_);
    const Event ready = queue.record();
    std::vector<std::shared_ptr<Sent>> mine;
    for (const Message& message : sends) {
      mine.push_back(std::make_shared<Sent>(Sent{message, ready, false, {}}));
      sent(rank, message.rank).push_back(mine.back());
    }
    std::vector<Message> open = receives;
    bool has_moved = !mine.empty();
    for (;;) {
      if (error_) throw GivenUp();
      has_moved |= receive(rank, queue, open) > 0;
      const auto unread = std::ranges::find(mine, false, [](const auto& own) { return own->received; });
      if (open.empty() && unread == mine.end()) break;
      waits_for_[std::size_t(rank)] = open.empty()
                                          ? concat("rank ", rank, " sends to rank ", (*unread)->message.rank)
                                          : concat("rank ", rank, " receives from rank ", open.front().rank);
      if (turns_ == Turns::free)
        await_change(rank, std::exchange(has_moved, false), lock);
      else
        await_next_turn(rank, std::exchange(has_moved, false), lock);
    }
    waits_for_[std::size_t(rank)].clear();
    in_vain_ = 0;
    if (has_moved) {
      ++changes_;
      changed_.notify_all();
    }
    // Waits only now: waiting before the last copy would make the copies of a ring wait for each other.
    for (const auto& own : mine) queue.wait_for(own->landed);
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::deque<std::shared_ptr<Sent>>& sent(int from, int to) {
    return sent_[std::size_t(from) * std::size_t(count_) + std::size_t(to)];
  }

  /// Issues the copies for messages already sent, and removes them from the list. Returns their number.
  int receive(int rank, Queue& queue, std::vector<Message>& open) {
    return int(std::erase_if(open, [&](const Message& message) {
      auto& from = sent(message.rank, rank);
      if (from.empty()) return false;
      Sent& other = *from.front();
      if (other.message.bytes != message.bytes)
        throw DeviceError("rank ", message.rank, " sends ", other.message.bytes, " bytes to rank ", rank,
                          ", which receives ", message.bytes, ": give both ends the same size");
      queue.wait_for(other.ready);
      copy_async(queue.stream(), message.data, other.message.data, message.bytes);
      other.landed = queue.record();
      other.received = true;
      from.pop_front();
      return true;
    }));
  }

  std::string describe_deadlock() const {
    std::string text = "deadlock: ";
    for (const std::string& waits : waits_for_)
      if (!waits.empty()) text += waits + ", ";
    for (int rank = 0; rank < count_; ++rank)
      if (over_[std::size_t(rank)]) text += concat("rank ", rank, " has ended, ");
    return text + "and none can continue. Put sends and their receives into the same exchange";
  }

  void await_turn(int rank, std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [&] { return turn_ == rank; });
  }

  /// Lets the other ranks continue; throws if all of them have had a turn and none could proceed.
  void await_next_turn(int rank, bool has_moved, std::unique_lock<std::mutex>& lock) {
    in_vain_ = has_moved ? 0 : in_vain_ + 1;
    if (in_vain_ > std::ranges::count(over_, false)) throw DeviceError(describe_deadlock());
    pass_turn(rank);
    await_turn(rank, lock);
  }

  /// Waits until another rank has sent, received or ended; throws if all ranks are waiting in this way.
  void await_change(int rank, bool has_moved, std::unique_lock<std::mutex>& lock) {
    if (has_moved) {
      ++changes_;
      changed_.notify_all();
    }
    const uint64_t seen = seen_[std::size_t(rank)] = changes_;
    bool all_wait = true;
    for (int other = 0; other < count_; ++other)
      all_wait &= over_[std::size_t(other)] ||
                  (!waits_for_[std::size_t(other)].empty() && seen_[std::size_t(other)] == changes_);
    if (all_wait) throw DeviceError(describe_deadlock());
    changed_.wait(lock, [&] { return changes_ != seen; });
  }

  /// Runs the next rank that has not ended.
  void pass_turn(int rank) {
    for (int i = 1; i <= count_; ++i) {
      turn_ = (rank + i) % count_;
      if (!over_[std::size_t(turn_)]) break;
    }
    changed_.notify_all();
  }

  const int count_;
  const Turns turns_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = 0;
  std::vector<char> over_;
  std::vector<std::string> waits_for_;  ///< for each rank in an exchange, what it is waiting for
  int in_vain_ = 0;                     ///< number of consecutive turns without progress
  uint64_t changes_ = 0;                ///< how often a rank has sent, received or ended
  std::vector<uint64_t> seen_;          ///< how many of these changes each waiting rank has seen
  std::vector<std::deque<std::shared_ptr<Sent>>> sent_;  ///< [from, to], not yet received
  std::exception_ptr error_;                             ///< from the first rank that failed
};

class RankOfThread final : public Rank {
 public:
  RankOfThread(Meeting& meeting, int number) : meeting_(meeting), number_(number) {}
  int number() const override { return number_; }
  int count() const override { return meeting_.count(); }
  Transport transport() const override { return Transport::copies; }
  void exchange(Queue& queue, const std::vector<Message>& sends,
                const std::vector<Message>& receives) override {
    meeting_.exchange(number_, queue, sends, receives);
  }

 private:
  Meeting& meeting_;
  const int number_;
};

}  // namespace

int device_of_rank(int rank) { return rank % device_count(); }

std::string why_not(Transport transport, int ranks) {
  if (ranks < 1) return concat("--ranks ", ranks, " is not supported: use at least 1");
  return transport == Transport::nccl ? backend::why_not_nccl(ranks) : "";
}

Turns default_turns() { return machine() == Machine::simulator ? Turns::one_at_a_time : Turns::free; }

void run_ranks(int count, const std::function<void(Rank&)>& body, Transport transport, Turns turns) {
  if (const std::string reason = why_not(transport, count); !reason.empty()) throw UsageError(reason);
  if (transport == Transport::nccl) return backend::run_nccl_ranks(count, body);
  for (int a = 0; a < count; ++a)
    for (int b = 0; b < count; ++b) connect(device_of_rank(a), device_of_rank(b));
  Meeting meeting(count, turns);
  std::vector<std::jthread> threads;
  for (int number = 0; number < count; ++number)
    threads.emplace_back([&meeting, &body, number] {
      meeting.run(number, [&] {
        RankOfThread rank(meeting, number);
        body(rank);
      });
    });
  threads.clear();  // waits for them
  meeting.rethrow();
}

}  // namespace flashbook::device
