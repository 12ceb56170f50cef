/// \file
/// Tracks what blocks of a grid know of each other's work. Internal to the simulator.
///
/// Blocks synchronise through words of device memory. A block writes its data, calls __threadfence, and then
/// updates the word by an atomic operation or a volatile store. A block that later updates or reads the word
/// in such a way sees everything written before the fence. (A fence on the reader's side is not required.)
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

/// The clocks of threads of several blocks, as in Clocks::fenced, up to which their work is known. Immutable
/// once it is shared.
using Knowledge = std::map<uint64_t, std::shared_ptr<const std::vector<uint32_t>>>;

/// The current value of a word of this size. (For more than 8 bytes, a number that differs if the bytes do.)
uint64_t value_of(std::uintptr_t word, std::size_t bytes);

/// A value that a word of device memory had after an atomic operation.
struct PastValue {
  uint64_t value;
  std::shared_ptr<const Knowledge> known{};  ///< what had been published there; null if nothing
  // The writer of the value, and what of its block was published with it; null before the first.
  uint64_t block = 0;
  int thread = 0;
  uint32_t clock = 0;
  std::shared_ptr<const std::vector<uint32_t>> row{};
};

/// What has been published at words of device memory. One per grid.
///
/// As long as every change of a word publishes something, its last values are kept too: a thread that has not
/// synchronised with the latest may read an earlier one, as may happen on a GPU.
class Published {
 public:
  /// `before`: the value that is still in the word.
  void add(std::uintptr_t word, const Knowledge& news, uint64_t before);
  /// Null if there is none.
  std::shared_ptr<const Knowledge> at(std::uintptr_t word);
  /// The same for a thread that reads `value`: if the word had it before the last add(), what had been
  /// published by then.
  std::shared_ptr<const Knowledge> as_of(std::uintptr_t word, uint64_t value);

  /// Hold this lock while changing a word, or reading a past value, until it has been noted.
  std::mutex& values() { return values_; }
  /// A word has been written, perhaps with the same value: a reader may get the earlier one. Without an
  /// unbroken row of values there is no past.
  void note_value(std::uintptr_t word, uint64_t before, PastValue now);
  /// The number of a word's oldest readable value, and all values from that one on; null if only the latest
  /// can be read.
  struct Past {
    uint64_t first = 0;
    std::deque<PastValue> values{};
  };
  const Past* past_of(std::uintptr_t word, uint64_t latest) const;

 private:
  static constexpr std::size_t kMostValues = 64;

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

/// What the threads of one block know of other blocks.
class BlockOrder {
 public:
  explicit BlockOrder(Clocks& clocks) : clocks_(clocks) {}

  void begin(uint64_t block, Published& published);
  void fence(int thread);
  /// `before`: the value that is still in the word.
  void publish(int thread, std::uintptr_t word, uint64_t before);
  void acquire(int thread, std::uintptr_t word) {
    acquire(thread, clocks_.now(thread), word, published_->at(word));
  }
  /// `thread` has written a word by an atomic operation, or may have: a failed compare-and-swap leaves it
  /// unchanged. (Published::values is held.)
  void note_value(int thread, std::uintptr_t word, uint64_t before, uint64_t now, bool may_fail);
  /// `thread` reads a word and acquires there. It gets the earliest value that it may: none older than those
  /// it knows of, and a later one if it only reads the word again and again. `accesses`: the number of its
  /// accesses so far. (Published::values is held.)
  uint64_t read(int thread, std::uintptr_t word, uint64_t latest, uint32_t accesses);
  /// `thread` is about to acquire: it may read whatever is published at this word before the read.
  void will_acquire(int thread, std::uintptr_t word, std::size_t bytes);
  /// Whether this is an agent and not a thread.
  bool is_agent(int of) const { return of >= clocks_.threads(); }
  /// Whether `thread` knows what a thread or agent of any block did at `clock`.
  bool knows(int thread, uint64_t block, int of, uint32_t clock);
  /// Whether it would if its reads had distinguished the latest value from an older equal one.
  bool would_know(int thread, uint64_t block, int of, uint32_t clock);
  /// Whether `thread` has acquired from another block at this very word, and so comes after that block's
  /// atomic operation.
  bool met_at(int thread, std::uintptr_t word, uint64_t block);
  /// Whether the async proxy knows it too when it works for `thread`, through a proxy fence for global
  /// memory.
  bool proxy_knows(int thread, uint64_t block, int of, uint32_t clock);

 private:
  struct Load {
    int thread;
    uint32_t clock;
    std::uintptr_t word;
    std::size_t bytes;
  };
  /// A thread acquired this when its clock was `clock`: a thread that knows of that clock knows this too.
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
  std::vector<Acquired> missed_;  ///< the same by reads of a possibly older value
  std::vector<Load> loads_;       ///< what threads are about to acquire
  struct Read {
    uint64_t number;  ///< of the value
    uint32_t clock, accesses;
    int times;  ///< how often the thread has read this value
  };
  std::map<std::pair<std::uintptr_t, int>, Read> reads_;  ///< the last of each word and thread
  struct {
    int thread;
    std::uintptr_t word;
    std::shared_ptr<const std::vector<uint32_t>> row;
  } last_published_{-1, 0, nullptr};
};

}  // namespace flashbook::sim
