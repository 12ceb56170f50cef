/// \file
/// Tracks which work of other blocks each block of a grid knows. Internal to the simulator.
///
/// Blocks synchronise through words of device memory. A block writes its data, calls __threadfence, and then
/// updates the word with an atomic operation or a volatile store. A block that later updates or reads the
/// word in such a way sees everything written before the fence. (The reader needs no fence.)
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/simulator/trace/clocks.h"

namespace flashbook::sim {

/// The clocks of threads in several blocks, as in Clocks::fenced, up to which their work is known. The object
/// is immutable once it is shared.
using Knowledge = std::map<uint64_t, std::shared_ptr<const std::vector<uint32_t>>>;

/// Returns the current value of a word of this size. (Words wider than 8 bytes are hashed to 64 bits.)
uint64_t value_of(std::uintptr_t word, std::size_t bytes);

/// A value that a word of device memory had after an atomic operation.
struct PastValue {
  uint64_t value;
  std::shared_ptr<const Knowledge> known{};  ///< knowledge that had been published there; null if none
  // The writer of the value, and the part of its block's work that was published with the value; null before
  // the first.
  uint64_t block = 0;
  int thread = 0;
  uint32_t clock = 0;
  std::shared_ptr<const std::vector<uint32_t>> row{};
};

/// The knowledge that has been published at words of device memory. There is one object per grid.
///
/// As long as every change of a word publishes something, the word's most recent values are kept as well: a
/// thread that has not synchronised with the latest one may read an earlier one, as can happen on a GPU.
class Published {
 public:
  /// `before` is the value that the word still contains.
  void add(std::uintptr_t word, const Knowledge& news, uint64_t before);
  /// Returns null if nothing was published there.
  std::shared_ptr<const Knowledge> at(std::uintptr_t word);
  /// Returns what a thread that reads `value` acquires: if the word already had this value before the last
  /// add(), only what had been published by then.
  std::shared_ptr<const Knowledge> as_of(std::uintptr_t word, uint64_t value);

  /// Hold this lock while changing a word, or while reading a past value, until the access has been noted.
  std::mutex& values() { return values_; }
  /// Notes that a word has been written, perhaps with the same value, so that a reader may get the earlier
  /// value. Past values are kept only while the sequence of values is unbroken.
  void note_value(std::uintptr_t word, uint64_t before, PastValue now);
  /// The number of a word's oldest readable value, and all values starting with that one; null if only the
  /// latest value can be read.
  struct Past {
    uint64_t first = 0;
    std::deque<PastValue> values{};
  };
  const Past* past_of(std::uintptr_t word, uint64_t latest) const;

 private:
  static constexpr std::size_t kMaxValues = 64;

  struct Word {
    std::shared_ptr<const Knowledge> known{};
    /// The last value that differed from the current one, and what had been published by then.
    std::optional<uint64_t> before{};
    std::shared_ptr<const Knowledge> known_before{};
  };

  std::mutex mutex_;
  std::unordered_map<std::uintptr_t, Word> words_;
  std::mutex values_;
  std::unordered_map<std::uintptr_t, Past> pasts_;
};

/// The knowledge that the threads of one block have of other blocks.
class BlockOrder {
 public:
  explicit BlockOrder(Clocks& clocks) : clocks_(clocks) {}

  void begin(uint64_t block, Published& published);
  void fence(int thread);
  /// `before` is the value that the word still contains.
  void publish(int thread, std::uintptr_t word, uint64_t before);
  void acquire(int thread, std::uintptr_t word) {
    acquire(thread, clocks_.now(thread), word, published_->at(word));
  }
  /// Notes that `thread` has written a word with an atomic operation, or may have: a failed compare-and-swap
  /// leaves it unchanged. (Published::values is held.)
  void note_value(int thread, std::uintptr_t word, uint64_t before, uint64_t now, bool may_fail);
  /// Notes that `thread` reads a word and acquires there. The thread gets the earliest value allowed: none
  /// older than those it knows of, and a later one if it only reads the word again and again. `accesses` is
  /// the number of its accesses so far. (Published::values is held.)
  uint64_t read(int thread, std::uintptr_t word, uint64_t latest, uint32_t accesses);
  /// Notes that `thread` is about to acquire: it may read whatever is published at this word before the read.
  void will_acquire(int thread, std::uintptr_t word, std::size_t bytes);
  /// Returns whether `of` is the number of an agent, as opposed to a thread.
  bool is_agent(int of) const { return of >= clocks_.threads(); }
  /// Returns whether `thread` knows the work of a thread or agent of any block up to `clock`.
  bool knows(int thread, uint64_t block, int of, uint32_t clock);
  /// Returns whether it would, if its reads distinguished the latest value from an earlier equal one.
  bool would_know(int thread, uint64_t block, int of, uint32_t clock);
  /// Returns whether `thread` has acquired from another block at this very word, and so follows that block's
  /// atomic operation.
  bool met_at(int thread, std::uintptr_t word, uint64_t block);
  /// Returns whether the async proxy also knows of this work when it works for `thread`, through a proxy
  /// fence for global memory.
  bool proxy_knows(int thread, uint64_t block, int of, uint32_t clock);

 private:
  struct Load {
    int thread;
    uint32_t clock;
    std::uintptr_t word;
    std::size_t bytes;
  };
  /// A thread acquired this knowledge when its clock was `clock`: another thread that knows of that clock has
  /// the knowledge, too.
  struct Acquired {
    int thread;
    uint32_t clock;
    std::uintptr_t word;
    std::shared_ptr<const Knowledge> what;
  };

  void acquire(int thread, uint32_t clock, std::uintptr_t word, std::shared_ptr<const Knowledge> what);
  bool knows(int thread, const PastValue& value);
  void settle();
  std::shared_ptr<const Knowledge> as_of(const Load& load);
  void miss(int thread, uint32_t clock, std::uintptr_t word);
  template <typename Found>
  bool any(const Found& found);

  Clocks& clocks_;
  Published* published_ = nullptr;
  uint64_t block_ = 0;
  std::vector<Acquired> acquired_;
  std::vector<Acquired> missed_;  ///< what threads missed by reading a value that may be older
  std::vector<Load> loads_;       ///< words that threads are about to acquire from
  struct Read {
    uint64_t number;  ///< number of the value
    uint32_t clock, accesses;
    int times;  ///< number of times that the thread has read this value
  };
  std::map<std::pair<std::uintptr_t, int>, Read> reads_;  ///< last read of each word by each thread
  struct {
    int thread;
    std::uintptr_t word;
    std::shared_ptr<const std::vector<uint32_t>> row;
  } last_published_{-1, 0, nullptr};
};

}  // namespace flashbook::sim
