/// \file
/// Vector clocks: who knows of whose work. Internal to the simulator.
///
/// Every thread counts its releases. A thread's vector says, for each other thread, up to which count it
/// knows what that one did; an access is ordered before another if whoever does the second knows the count at
/// which the first was done. (L. Lamport, 1978; F. Mattern, 1988; FastTrack, C. Flanagan and S. Freund,
/// 2009.) Agents, which stand for the async proxy, are entries like threads, but what they count are tickets.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/simulator/observer.h"

namespace flashbook::sim {

/// Agents of a block; those beyond share the last entry, which makes the checks weaker and never wrong.
constexpr int kAgents = 128;

/// A row of counts that several hold, all on one OS thread: a std::shared_ptr would count them atomically.
class SharedRow {
 public:
  SharedRow() = default;
  explicit SharedRow(std::vector<uint32_t> row) : held_(new Held{std::move(row), 1}) {}
  SharedRow(const SharedRow& other) : held_(other.held_) {
    if (held_) ++held_->holders;
  }
  SharedRow(SharedRow&& other) noexcept : held_(std::exchange(other.held_, nullptr)) {}
  SharedRow& operator=(SharedRow other) noexcept {
    std::swap(held_, other.held_);
    return *this;
  }
  ~SharedRow() {
    if (held_ && --held_->holders == 0) delete held_;
  }
  explicit operator bool() const { return held_ != nullptr; }
  const std::vector<uint32_t>& operator*() const { return held_->row; }
  const uint32_t* data() const { return held_->row.data(); }
  friend bool operator==(const SharedRow& a, const SharedRow& b) { return a.held_ == b.held_; }

 private:
  struct Held {
    std::vector<uint32_t> row;
    int holders;
  };
  Held* held_ = nullptr;
};

/// The clocks of a block.
class Clocks {
 public:
  /// Forgets everything.
  void begin(int threads);

  int threads() const { return threads_; }
  uint32_t now(int thread) const { return own_[std::size_t(thread)]; }
  /// What `thread` knows of another thread, or of agent `of - threads()`.
  uint32_t known(int thread, int of) const {
    return of == thread ? now(thread) : known_of_others(thread)[of];
  }
  /// The same of all others; good until anything happens.
  const uint32_t* known_of_others(int thread) const {
    const Row& row = rows_[std::size_t(thread)];
    return !row.changed.empty() ? row.changed.data() : row.shared ? row.shared.data() : nothing_.data();
  }
  /// The same of all these lanes, if they share it; else null.
  const uint32_t* known_to_all(int first_thread, uint32_t lanes) const {
    const uint32_t* known = known_of_others(first_thread + __builtin_ctz(lanes));
    for (uint32_t left = lanes; left; left &= left - 1)
      if (known_of_others(first_thread + __builtin_ctz(left)) != known) return nullptr;
    return known;
  }
  /// `thread` knows what each lane of a warp did up to this count, and maybe more.
  uint32_t least_known(int thread, int warp) const {
    return known_of_others(thread)[std::size_t(threads_ + kAgents + warp)];
  }
  /// The same, as far as a proxy fence for that memory has made it known to the async proxy.
  uint32_t known_to_proxy(int thread, int of, Proxied memory) const {
    return behind(Fence(memory), thread, of);
  }
  /// The same, as far as a memory fence came after it: the thread's own, or another one's that it knows of.
  uint32_t known_behind_fence(int thread, int of) const { return behind(Fence::memory, thread, of); }
  /// The same of what was known to the async proxy, for global memory, when that fence came.
  uint32_t known_to_proxy_behind_fence(int thread, int of) const {
    return behind(Fence::memory_of_proxy, thread, of);
  }

  void join(int first_thread, uint32_t lanes);
  void release(int thread, const void* object);
  void complete(const void* object);
  void acquire(int thread, const void* object);
  /// The same for a thread that reads `value` there: if the word had it before the last publish(), what had
  /// been published by then.
  void acquire_as_of(int thread, const void* object, uint64_t value);
  /// Whether `thread` would know what a thread did then if its reads had told the latest value from an older.
  bool would_know(int thread, int of, uint32_t clock) const {
    return std::any_of(missed_.begin(), missed_.end(), [&](const auto& missed) {
      return missed.first == thread && (*missed.second)[std::size_t(of)] >= clock;
    });
  }
  void fence_proxy(int thread, Proxied memory);
  /// publish() hands over what `thread` knows now, also if another thread calls it that knows of the fence.
  void fence(int thread);
  /// Hands over what fences have covered, to whoever acquires from the object: the thread's own fences, and
  /// those of others that it knows of, by a barrier after them. `before`: the value that is still there.
  void publish(int thread, const void* object, uint64_t before);
  /// What that is: what is known of each thread and agent, and then, of each again, as far as the async proxy
  /// knows it in global memory; empty if it is nothing.
  std::vector<uint32_t> fenced(int thread);
  /// Threads, agents, and a least count of each warp's threads.
  std::size_t width() const { return width_; }
  /// Whether the thread has fenced, and done nothing since that others wait for.
  bool has_just_fenced(int thread) const {
    const uint32_t last = known_behind_fence(thread, thread);
    return last != 0 && last + 1 == now(thread);
  }
  /// `thread` knows what others know.
  void learn(int thread, const std::vector<uint32_t>& known);

  /// The entry of the agent that stands for the object.
  int agent(const void* object);
  /// A new ticket of an agent.
  uint32_t next_ticket(int agent) { return ++tickets_[std::size_t(agent - threads_)]; }
  /// `thread` knows the agent's work up to a ticket.
  void learn(int thread, int agent, uint32_t ticket);
  /// The agent's work up to a ticket is released.
  void release_agent(int agent, uint32_t ticket, const void* object);

 private:
  using Vector = std::vector<uint32_t>;
  /// What may come between an access and those who must know of it: a proxy fence for either memory, a memory
  /// fence, or a proxy fence for global memory and then a memory fence. (In the order of Proxied.)
  enum class Fence { shared, global, memory, memory_of_proxy };
  using Fenced = std::array<Vector, 4>;  // by each
  /// What was released in the round that is under way, and in the last one that was completed; for plain
  /// accesses and for the async proxy.
  struct Object {
    Vector gathering;
    SharedRow complete;
    SharedRow gathered, completed;  ///< a row that is a part of them
    uint32_t rounds = 0;            ///< that are complete
    /// Of a word: the value before the last that differed from it, and what had been published by then.
    std::optional<uint64_t> before;
    SharedRow complete_before;
    Fenced gathering_fenced, complete_fenced;
  };
  /// What a thread knows of others. Threads that meet at a barrier know the same: they share it until one
  /// learns something else.
  struct Row {
    SharedRow shared;
    Vector changed;                     ///< if it is not empty, this counts
    const void* released_to = nullptr;  ///< the object to which all of this was released last, and its round
    uint32_t released_round = 0;
  };

  Object& object_at(const void* object) {
    if (object != last_) last_object_ = &objects_[last_ = object];
    return *last_object_;
  }
  uint32_t behind(Fence fence, int thread, int of) const {
    const Vector& known = fenced_[std::size_t(fence)];
    return known.empty() ? 0 : known[std::size_t(thread) * width_ + std::size_t(of)];
  }
  uint32_t* fenced_row(Fence fence, int thread);
  static void share(Row& row, const SharedRow& known);
  uint32_t* change(int thread);
  void note_least(Vector& known, int first_thread) const;
  static uint32_t* row_of(Vector& known, int thread, std::size_t width) {
    return &known[std::size_t(thread) * width];
  }

  int threads_ = 0;
  std::size_t width_ = 0;
  Vector own_;             // of each thread: its count
  std::vector<Row> rows_;  // of each thread
  Vector nothing_;         // a row of zeros
  Fenced fenced_;          // what each thread knows to be behind a fence; empty until the first of its kind
  std::unordered_map<const void*, Object> objects_;
  const void* last_ = nullptr;  // the one that was asked for last: threads of a block meet at the same
  Object* last_object_ = nullptr;
  std::vector<std::pair<int, SharedRow>> missed_;  // by threads that read what may be an older value
  std::unordered_map<const void*, int> agents_;
  Vector tickets_;
};

}  // namespace flashbook::sim
