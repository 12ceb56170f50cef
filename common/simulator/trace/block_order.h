/// \file
/// What blocks of a grid know of each other. Internal to the simulator.
///
/// Blocks meet in words of device memory. Who has something to tell writes it, calls __threadfence, and then
/// acts on the word by an atomic operation or a volatile store; who acts on the word afterwards, or reads it
/// so, knows what had been written before the fence. (The fence on the reader's side is not asked for.)
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

/// The clocks of threads of several blocks, as Clocks::fenced has them, up to which their work is known.
/// Never changed once it is shared.
using Knowledge = std::map<uint64_t, std::shared_ptr<const std::vector<uint32_t>>>;

/// What a word of so many bytes holds now. (Of more than 8, a number that differs if they do.)
uint64_t value_of(std::uintptr_t word, std::size_t bytes);

/// A value that a word of device memory had, from an atomic operation on.
struct PastValue {
  uint64_t value;
  std::shared_ptr<const Knowledge> known{};  ///< what had been published there; null if nothing
  // Who brought it, and what of that block was published with it; null before the first.
  uint64_t block = 0;
  int thread = 0;
  uint32_t clock = 0;
  std::shared_ptr<const std::vector<uint32_t>> row{};
};

/// What has been published at words of device memory. One for a grid.
///
/// As long as all that happens to a word publishes something, its last values are kept too: who reads it
/// without knowing of the latest may as well read an earlier one, and on a GPU does.
class Published {
 public:
  /// `before`: the value that is still there.
  void add(std::uintptr_t word, const Knowledge& news, uint64_t before);
  /// Null if nothing was.
  std::shared_ptr<const Knowledge> at(std::uintptr_t word);
  /// The same for a thread that reads `value` there: if the word had it before the last add(), what had been
  /// published by then.
  std::shared_ptr<const Knowledge> as_of(std::uintptr_t word, uint64_t value);

  /// Held by whoever changes a word, or reads a past value, until it has been noted.
  std::mutex& values() { return values_; }
  /// A word has been written, perhaps with the value that it had: who reads that may read the earlier one.
  /// Without a row there is no past any more.
  void note_value(std::uintptr_t word, uint64_t before, PastValue now);
  /// The number of a word's oldest value, and all from that one on; null if only the latest can be read.
  struct Past {
    uint64_t first = 0;
    std::deque<PastValue> values{};
  };
  const Past* past_of(std::uintptr_t word, uint64_t latest) const;

 private:
  static constexpr std::size_t kMostValues = 64;

  struct Word {
    std::shared_ptr<const Knowledge> known{};
    /// The value before the last that differed from it, and what had been published by then.
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
  /// `before`: the value that is still there.
  void publish(int thread, std::uintptr_t word, uint64_t before);
  void acquire(int thread, std::uintptr_t word) {
    acquire(thread, clocks_.now(thread), word, published_->at(word));
  }
  /// `thread` has written a word by an atomic operation, or may have: a compare-and-swap that fails leaves
  /// what was there. (Published::values is held.)
  void note_value(int thread, std::uintptr_t word, uint64_t before, uint64_t now, bool may_fail);
  /// `thread` reads a word and acquires there. It gets the earliest value that it may: none from before those
  /// that it knows of, and a later one if it reads again without having done anything else. `accesses`: a
  /// count of what it does. (Published::values is held.)
  uint64_t read(int thread, std::uintptr_t word, uint64_t latest, uint32_t accesses);
  /// `thread` is about to acquire: whatever is published until it has read the word of so many bytes, it may
  /// have read.
  void will_acquire(int thread, std::uintptr_t word, std::size_t bytes);
  /// Whether this is no thread, but an agent.
  bool is_agent(int of) const { return of >= clocks_.threads(); }
  /// Whether `thread` knows what a thread, or an agent, of any block did when its clock was `clock`.
  bool knows(int thread, uint64_t block, int of, uint32_t clock);
  /// Whether it would if its reads had told the latest value from an older one that is the same.
  bool would_know(int thread, uint64_t block, int of, uint32_t clock);
  /// Whether `thread` has learnt something of another block at this very word, and so after the atomic
  /// operation of that block which told it.
  bool met_at(int thread, std::uintptr_t word, uint64_t block);
  /// Whether the async proxy knows it too when it works for `thread`: a proxy fence for global memory came
  /// between.
  bool proxy_knows(int thread, uint64_t block, int of, uint32_t clock);

 private:
  struct Load {
    int thread;
    uint32_t clock;
    std::uintptr_t word;
    std::size_t bytes;
  };
  /// A thread has acquired when its clock was `clock`: whoever knows that, knows what was acquired.
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
  std::vector<Acquired> missed_;  ///< the same by reads of what may be an older value
  std::vector<Load> loads_;       ///< what they have been about to acquire
  struct Read {
    uint64_t number;  ///< of the value
    uint32_t clock, accesses;
    int times;  ///< that the thread has read this value
  };
  std::map<std::pair<std::uintptr_t, int>, Read> reads_;  ///< the last of each word and thread
  struct {
    int thread;
    std::uintptr_t word;
    std::shared_ptr<const std::vector<uint32_t>> row;
  } last_published_{-1, 0, nullptr};
};

}  // namespace flashbook::sim
