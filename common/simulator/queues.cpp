#include "common/simulator/queues.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/simulator/block/scheduler.h"
#include "common/simulator/launch.h"
#include "common/simulator/memory.h"

namespace flashbook::sim {

/// The work of a stream.
class Queue {
 public:
  /// A piece of work: either `steps`, or a wait for a mark in another queue.
  struct Item {
    std::deque<std::function<void()>> steps;
    Mark waits_for;
  };

  explicit Queue(int device) : device(device) {}

  const int device;
  int priority = 0;   ///< in random order, the queue with the highest priority that can proceed runs
  uint64_t done = 0;  ///< number of completed items
  std::deque<Item> items;

  uint64_t end() const { return done + items.size(); }
  bool is_over(const Mark& mark) const { return !mark.queue || mark.queue->done >= mark.position; }
  bool can_go_on() const { return !items.empty() && is_over(items.front().waits_for); }
  /// Executes the next step.
  void step() {
    Item& item = items.front();
    if (!item.steps.empty()) {
      const auto next = std::move(item.steps.front());
      item.steps.pop_front();
      next();
    }
    if (!item.steps.empty()) return;
    items.pop_front();
    ++done;
  }
};

namespace {

/// All queues. Only one host thread at a time uses them.
class Queues {
 public:
  Queue* make() {
    queues_.push_back(std::make_unique<Queue>(current_device()));
    queues_.back()->priority = random().below(1 << 30);
    return queues_.back().get();
  }

  /// Executes `work` and keeps any exception for the next call that waits.
  template <typename Work>
  void quietly(const Work& work) noexcept {
    try {
      work();
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  void free(Queue* queue) noexcept {
    quietly([&] { finish({queue, queue->end()}); });
    // No work is left to wait for.
    for (const auto& other : queues_)
      for (Queue::Item& item : other->items)
        if (item.waits_for.queue == queue) item.waits_for = {};
    std::erase_if(queues_, [queue](const auto& other) { return other.get() == queue; });
  }

  bool has(const void* queue) const {
    return std::any_of(queues_.begin(), queues_.end(),
                       [queue](const auto& other) { return other.get() == queue; });
  }

  void add(Queue& queue, Queue::Item item) {
    queue.items.push_back(std::move(item));
    if (options().async == Async::eager) finish({&queue, queue.end()});
    if (options().async == Async::random)
      while (random().below(kMaxHaste) < haste_ && step_anywhere()) {
      }
  }

  void finish(const Mark& mark) {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    if (!mark.queue) return;
    Queue& queue = *mark.queue;
    while (queue.done < mark.position) {
      if (options().async == Async::random) {
        step_anywhere();
        continue;
      }
      finish(queue.items.front().waits_for);
      step(queue);
    }
  }

  void finish_all() {
    for (const auto& queue : queues_) finish({queue.get(), queue->end()});
    finish({});
  }

 private:
  /// Executes a step of a queue that can proceed; returns false if there is none. If every step chose a new
  /// queue, no queue would fall far behind. So queues have priorities that rarely change, like the warps of a
  /// block (scheduler.cpp).
  bool step_anywhere() {
    Queue* first = nullptr;
    for (const auto& queue : queues_)
      if (queue->can_go_on() && (!first || queue->priority > first->priority)) first = queue.get();
    if (!first) return false;
    if (random().below(16) == 0)
      queues_[std::size_t(random().below(int(queues_.size())))]->priority = random().below(1 << 30);
    step(*first);
    return true;
  }

  void step(Queue& queue) {
    try {
      queue.step();
    } catch (...) {
      for (const auto& other : queues_) {
        other->done = other->end();
        other->items.clear();
      }
      throw;
    }
  }

  Random& random() {
    if (!random_ || seed_ != options().seed) {
      random_.emplace(seed_ = options().seed);
      haste_ = random_->below(kMaxHaste);
    }
    return *random_;
  }

  std::vector<std::unique_ptr<Queue>> queues_;
  std::exception_ptr error_;  ///< error in work that has not been waited for yet
  static constexpr int kMaxHaste = 4;

  std::optional<Random> random_;
  uint64_t seed_ = 0;
  int haste_ = 0;  ///< chance, out of kMaxHaste, that a step of work runs before any wait for it
};

std::recursive_mutex mutex;

/// Never destroyed, like the device memory.
Queues& queues() {
  static Queues& queues = *new Queues;
  return queues;
}

}  // namespace

Queue* make_queue() {
  const std::lock_guard lock(mutex);
  return queues().make();
}

void free_queue(Queue* queue) noexcept {
  const std::lock_guard lock(mutex);
  queues().free(queue);
}

bool is_queue(const void* queue) {
  const std::lock_guard lock(mutex);
  return queues().has(queue);
}

int device_of(const Queue& queue) { return queue.device; }

void enqueue(Queue& queue, std::function<void()> work) {
  const std::lock_guard lock(mutex);
  queues().add(queue, {{std::move(work)}, {}});
}

void copy_rows(void* target, const void* source, const Rows& rows) {
  for (std::size_t row = 0; row < rows.rows; ++row) {
    std::byte* const to = static_cast<std::byte*>(target) + row * rows.target_pitch;
    std::memcpy(to, static_cast<const std::byte*>(source) + row * rows.source_pitch, rows.row_bytes);
    note_written(to, rows.row_bytes);
  }
}

void enqueue_copy(Queue& queue, void* target, const void* source, const Rows& rows) {
  for (const bool is_target : {true, false})
    if (const std::size_t bytes = rows.bytes(is_target ? rows.target_pitch : rows.source_pitch);
        !is_allocated(is_target ? target : source, bytes))
      throw Error("a copy of " + std::to_string(bytes) + " bytes " + (is_target ? "to" : "from") +
                  " memory that is not, or not entirely, allocated on a device");
  const auto begins = [=] {
    for (std::size_t row = 0; row < rows.rows; ++row)
      std::memset(static_cast<std::byte*>(target) + row * rows.target_pitch, 0xff, rows.row_bytes);
  };
  const auto lands = [=] { copy_rows(target, source, rows); };
  const std::lock_guard lock(mutex);
  queues().add(queue, {{begins, lands}, {}});
}

Mark mark(const Queue& queue) {
  const std::lock_guard lock(mutex);
  return {const_cast<Queue*>(&queue), queue.end()};
}

void enqueue_wait(Queue& queue, const Mark& mark) {
  const std::lock_guard lock(mutex);
  queues().add(queue, {{}, is_queue(mark.queue) ? mark : Mark{}});
}

void finish(const Mark& mark) {
  const std::lock_guard lock(mutex);
  queues().finish(is_queue(mark.queue) ? mark : Mark{});
}

void finish_all() {
  const std::lock_guard lock(mutex);
  queues().finish_all();
}

void finish_all_quietly() noexcept {
  const std::lock_guard lock(mutex);
  queues().quietly([] { queues().finish_all(); });
}

}  // namespace flashbook::sim
