/// \file
/// Suspected races that may turn out to be harmless. Internal to the simulator.
///
/// Threads may store the same value in one place without a barrier, since the order does not matter. A plain
/// load may begin a compare-and-swap loop, which detects whether the loaded value was current.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace flashbook::sim {

/// Keeps the suspicions about the threads of a block until each thread's next action is known.
class Suspicions {
 public:
  /// Adds the race to the faults.
  using Report = std::function<void()>;

  void begin(int threads) {
    stores_.assign(std::size_t(threads), std::nullopt);
    waiting_ = 0;
    loads_.clear();
  }

  /// Notes that `thread` is about to store these bytes over another thread's store.
  void store(int thread, std::uintptr_t address, std::size_t bytes, Report report) {
    const auto* memory = reinterpret_cast<const unsigned char*>(address);
    stores_[std::size_t(thread)] = {address, {memory, memory + bytes}, std::move(report)};
    ++waiting_;
  }
  /// Notes that `thread` is about to load a word that others update with atomic operations.
  void load(int thread, std::uintptr_t address, Report report) {
    loads_.try_emplace({thread, address}, std::move(report));
  }

  /// Returns whether no store is under suspicion.
  bool none() const { return waiting_ == 0; }
  /// Notes the next action of `thread`: its store has taken place.
  void goes_on(int thread) {
    if (waiting_ > 0) decide(thread);
  }
  /// Notes that `thread` performs an atomic operation on this word.
  void updates(int thread, std::uintptr_t address) {
    if (!loads_.empty()) loads_.erase({thread, address});
  }
  /// Treats all suspicions that remain at the end of the block as races.
  void finish() {
    for (std::size_t thread = 0; thread < stores_.size(); ++thread) goes_on(int(thread));
    for (const auto& [place, report] : loads_) report();
    loads_.clear();
  }

 private:
  struct Store {
    std::uintptr_t address;
    std::vector<unsigned char> before;
    Report report;
  };

  void decide(int thread) {
    auto& store = stores_[std::size_t(thread)];
    if (!store) return;
    if (std::memcmp(store->before.data(), reinterpret_cast<const void*>(store->address),
                    store->before.size()) != 0)
      store->report();
    store.reset();
    --waiting_;
  }

  std::vector<std::optional<Store>> stores_;
  int waiting_ = 0;
  std::map<std::pair<int, std::uintptr_t>, Report> loads_;
};

}  // namespace flashbook::sim
