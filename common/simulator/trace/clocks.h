/// \file
/// Vector clocks, which record whose work each thread has seen. Internal to the simulator.
///
/// Every thread counts its releases. A thread's vector holds, for each other thread, the count up to which it
/// has seen that thread's work; an access is ordered before another if the second thread has seen the count
/// at which the first access was made. (L. Lamport, 1978; F. Mattern, 1988; FastTrack, C. Flanagan and S.
/// Freund, 2009.) Agents, which represent the async proxy, have entries like threads, but count tickets.
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

/// The number of agents per block. Any further agents share the last entry, which may hide races but never
/// causes a false report.
constexpr int kAgents = 128;

/// A row of counts with several owners on one OS thread. (A std::shared_ptr would use atomic reference
/// counts.)
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

class Clocks {
 public:
  /// Discards all state.
  void begin(int threads);

  int threads() const { return threads_; }
  uint32_t now(int thread) const { return own_[std::size_t(thread)]; }
  /// Returns the count up to which `thread` knows the work of `of`: a thread, or agent `of - threads()`.
  uint32_t known(int thread, int of) const {
    return of == thread ? now(thread) : known_of_others(thread)[of];
  }
  /// Returns the row of these counts for all other threads and agents; valid until the next change.
  const uint32_t* known_of_others(int thread) const {
    const Row& row = rows_[std::size_t(thread)];
    return !row.changed.empty() ? row.changed.data() : row.shared ? row.shared.data() : nothing_.data();
  }
  /// Returns the row of counts that all these lanes share, or null if their counts differ.
  const uint32_t* known_to_all(int first_thread, uint32_t lanes) const {
    const uint32_t* known = known_of_others(first_thread + __builtin_ctz(lanes));
    for (uint32_t left = lanes; left; left &= left - 1)
      if (known_of_others(first_thread + __builtin_ctz(left)) != known) return nullptr;
    return known;
  }
  /// Returns a lower bound on the counts of a warp's lanes that `thread` knows.
  uint32_t least_known(int thread, int warp) const {
    return known_of_others(thread)[std::size_t(threads_ + kAgents + warp)];
  }
  /// Returns the count up to which proxy fences for `memory`, by `thread` or by threads it has synchronised
  /// with, have made the work of `of` known to the async proxy.
  uint32_t known_to_proxy(int thread, int of, Proxied memory) const {
    return behind(Fence(memory), thread, of);
  }
  /// Returns the count up to which a memory fence has covered `thread`'s knowledge of `of`: either its own
  /// fence, or another thread's that it knows of.
  uint32_t known_behind_fence(int thread, int of) const { return behind(Fence::memory, thread, of); }
  /// Returns the count up to which a proxy fence for global memory, followed by such a memory fence, has made
  /// the work of `of` known to the async proxy.
  uint32_t known_to_proxy_behind_fence(int thread, int of) const {
    return behind(Fence::memory_of_proxy, thread, of);
  }

  void join(int first_thread, uint32_t lanes);
  void release(int thread, const void* object);
  void complete(const void* object);
  void acquire(int thread, const void* object);
  /// Acquires from a word in which `thread` has read `value`: if the word already had this value before the
  /// last publish(), acquires only the knowledge published by then.
  void acquire_as_of(int thread, const void* object, uint64_t value);
  /// Returns whether `thread` would know that clock if its reads had distinguished the latest value from an
  /// earlier equal one.
  bool would_know(int thread, int of, uint32_t clock) const {
    return std::any_of(missed_.begin(), missed_.end(), [&](const auto& missed) {
      return missed.first == thread && (*missed.second)[std::size_t(of)] >= clock;
    });
  }
  void fence_proxy(int thread, Proxied memory);
  /// Notes a fence: from now on, publish() includes what `thread` knows now, even when it is called by a
  /// thread that knows of the fence.
  void fence(int thread);
  /// Publishes everything that fences have covered to every thread that acquires from the object: this
  /// includes the thread's own fences, and any fence that it knows of through a later barrier. `before` is
  /// the value that the word still contains.
  void publish(int thread, const void* object, uint64_t before);
  /// Returns the knowledge that publish() hands over: a row of counts that memory fences cover, then the row
  /// of counts up to which work in global memory is known to the async proxy. Empty if there is none.
  std::vector<uint32_t> fenced(int thread);
  /// Row layout: threads, agents, and a lower bound per warp.
  std::size_t width() const { return width_; }
  /// Returns whether the thread has fenced, and has not released anything since.
  bool has_just_fenced(int thread) const {
    const uint32_t last = known_behind_fence(thread, thread);
    return last != 0 && last + 1 == now(thread);
  }
  /// Adds the knowledge of others to that of `thread`.
  void learn(int thread, const std::vector<uint32_t>& known);

  /// Returns the entry of the agent that represents the object.
  int agent(const void* object);
  uint32_t next_ticket(int agent) { return ++tickets_[std::size_t(agent - threads_)]; }
  /// Adds the agent's work up to a ticket to the knowledge of `thread`.
  void learn(int thread, int agent, uint32_t ticket);
  /// Releases the agent's work up to a ticket.
  void release_agent(int agent, uint32_t ticket, const void* object);

 private:
  using Vector = std::vector<uint32_t>;
  /// The fences that an access may need before another thread can see it: a proxy fence for either memory,
  /// a memory fence, or a proxy fence for global memory followed by a memory fence. (In the order of
  /// Proxied.)
  enum class Fence { shared, global, memory, memory_of_proxy };
  using Fenced = std::array<Vector, 4>;  // indexed by Fence
  /// The knowledge released in the current round and in the last complete one, for plain accesses and for the
  /// async proxy.
  struct Object {
    Vector gathering;
    SharedRow complete;
    SharedRow gathered, completed;  ///< a row that was merged into them
    uint32_t rounds = 0;            ///< number of complete rounds
    /// For a word: the last value that differed from the current one, and the knowledge published by then.
    std::optional<uint64_t> before;
    SharedRow complete_before;
    Fenced gathering_fenced, complete_fenced;
  };
  /// A thread's knowledge of all others. Threads that meet at a barrier have the same knowledge and share the
  /// row until one of them learns more.
  struct Row {
    SharedRow shared;
    Vector changed;                     ///< the thread's own copy; valid if not empty
    const void* released_to = nullptr;  ///< the object to which all of this was last released, and its round
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
  Vector own_;             // each thread's count
  std::vector<Row> rows_;  // each thread's row
  Vector nothing_;         // a row that contains only zeros
  Fenced fenced_;          // each thread's knowledge behind a fence; empty until the first fence of its kind
  std::unordered_map<const void*, Object> objects_;
  const void* last_ = nullptr;  // last object used: threads of a block usually meet at the same one
  Object* last_object_ = nullptr;
  /// The knowledge that each thread missed because the value it read may be an older, equal one.
  std::vector<std::pair<int, SharedRow>> missed_;
  std::unordered_map<const void*, int> agents_;
  Vector tickets_;
};

}  // namespace flashbook::sim
