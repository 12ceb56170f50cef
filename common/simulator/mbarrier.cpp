#include "common/simulator/mbarrier.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "common/simulator/addresses.h"
#include "common/simulator/scheduler.h"

namespace flashbook::sim {
namespace {

/// PTX's ranges of arrivals and of pending bytes.
constexpr uint32_t kMaxArrivals = (1u << 20) - 1;
constexpr int64_t kMaxBytes = (1 << 20) - 1;

/// In the word of barrier number i, above i.
constexpr uint64_t kMark = uint64_t(0x6d626172) << 32;

uint64_t word_at(const void* address) {
  uint64_t word;
  std::memcpy(&word, address, sizeof word);
  return word;
}

// The reports are functions of their own that never return, as in collectives.cpp.

[[noreturn]] void not_a_barrier(const char* what, const void* address, const std::vector<Mbarrier>& known,
                                Location where) {
  const std::string call = describe_call(what, where) + ": ";
  const std::string place = running_worker(what, where).describe_address(address);
  for (const Mbarrier& barrier : known)
    if (barrier.address == address)
      throw Error(call + "the mbarrier at " + place + ", initialised at " + to_string(barrier.where) +
                  ", has been overwritten: look for a tile or an array that reaches into it");
  if (word_at(address) == ~uint64_t(0))
    throw Error(
        call + "the mbarrier at " + place +
        " is not initialised: one thread calls mbarrier_init, and a __syncthreads comes before others "
        "use it");
  throw Error(call + "there is no mbarrier at " + place +
              ": mbarrier_init makes one, and it can be neither copied nor written");
}

[[noreturn]] void twice_initialised(const Mbarrier& barrier, Location where) {
  throw Error(describe_call("mbarrier_init", where) + ": " + describe(barrier) +
              " was already initialised, by thread " + std::to_string(barrier.initialiser) + " at " +
              to_string(barrier.where) + ": one thread does it, once");
}

[[noreturn]] void too_many_arrivals(const char* what, const Mbarrier& barrier, Location where) {
  throw Error(describe_call(what, where) + ": one arrival too many at " + describe(barrier) +
              ". All the phase takes have come, " + describe_state(barrier) +
              ". Either more threads arrive than mbarrier_init at " + to_string(barrier.where) +
              " was told, or this one arrives for the next phase before this one is over: did its wait pass "
              "too early?");
}

[[noreturn]] void too_many_bytes(const char* what, const Mbarrier& barrier, int64_t bytes, Location where) {
  throw Error(describe_call(what, where) + ": " + describe(barrier) + " would have " + std::to_string(bytes) +
              " pending bytes, more than an mbarrier counts (1048575): use smaller boxes or more barriers");
}

[[noreturn]] void lapped(const char* what, const Mbarrier& barrier, uint32_t phase, Location where) {
  throw Error(describe_call(what, where) + ": lapped. The thread waits for the end of phase " +
              std::to_string(phase) + " of " + describe(barrier) + ", and phase " +
              std::to_string(barrier.phase - 1) +
              " is over too before the thread has gone on; on a GPU it can miss the phase and wait for "
              "another. Whoever lets the barrier go on must wait for this thread first");
}

}  // namespace

std::string describe(const Mbarrier& barrier) {
  if (!barrier.name) return "the mbarrier at " + current_worker->describe_address(barrier.address);
  return std::string("mbarrier ") + barrier.name +
         (barrier.index < 0 ? "" : "[" + std::to_string(barrier.index) + "]");
}

std::string describe_state(const Mbarrier& barrier) {
  std::string bytes = std::to_string(barrier.bytes) + " bytes pending";
  if (barrier.bytes < 0)
    bytes = std::to_string(-barrier.bytes) + " bytes more landed than were announced in this phase";
  return "it is in phase " + std::to_string(barrier.phase) + " (parity " + std::to_string(barrier.phase & 1) +
         "), " + std::to_string(barrier.pending) + " of " + std::to_string(barrier.arrivals) +
         " arrivals pending, " + bytes;
}

std::size_t Worker::mbarrier_at(const char* what, const void* address, Location where) {
  require_shared(what, address, sizeof(uint64_t), sizeof(uint64_t), where);
  const uint64_t number = word_at(address) ^ kMark;
  if (number >= mbarriers_.size() || mbarriers_[number].address != address)
    not_a_barrier(what, address, mbarriers_, where);
  return number;
}

void Worker::init_mbarrier(void* address, uint32_t arrivals, Location where) {
  require_shared("mbarrier_init", address, sizeof(uint64_t), sizeof(uint64_t), where);
  if (arrivals < 1 || arrivals > kMaxArrivals)
    throw Error(describe_call("mbarrier_init", where) + " names " + std::to_string(arrivals) +
                " arrivals: give 1 to 1048575");
  const uint64_t known = word_at(address) ^ kMark;
  if (known < mbarriers_.size() && mbarriers_[known].address == address)
    twice_initialised(mbarriers_[known], where);
  // Shared memory may have served as something else: an old record would lie about the new barrier.
  std::size_t number = 0;
  while (number < mbarriers_.size() && mbarriers_[number].address != address) ++number;
  if (number == mbarriers_.size()) mbarriers_.emplace_back();
  mbarriers_[number] = {.address = address,
                        .arrivals = arrivals,
                        .pending = arrivals,
                        .initialiser = number_of(*current_),
                        .where = where,
                        .seen = std::vector<uint32_t>(threads_.size())};
  const uint64_t word = kMark | number;
  std::memcpy(address, &word, sizeof word);
}

void Worker::name_mbarrier(const void* address, const char* name, int index, Location where) {
  Mbarrier& barrier = mbarriers_[mbarrier_at("name_mbarrier", address, where)];
  barrier.name = name;
  barrier.index = index;
}

void Worker::fence_mbarriers() {
  const int self = number_of(*current_);
  for (Mbarrier& barrier : mbarriers_)
    if (barrier.initialiser == self) barrier.fenced = true;
}

/// A thread's arrival, for which `bytes` must land too.
void Worker::arrive_at_mbarrier(const char* what, const void* address, uint32_t bytes, Location where) {
  Mbarrier& barrier = mbarriers_[mbarrier_at(what, address, where)];
  const int64_t pending_bytes = int64_t(barrier.bytes) + bytes;
  if (pending_bytes > kMaxBytes) too_many_bytes(what, barrier, pending_bytes, where);
  if (barrier.pending == 0) too_many_arrivals(what, barrier, where);
  barrier.bytes = int32_t(pending_bytes);
  --barrier.pending;
  if (observer_) observer_->releases(number_of(*current_), barrier.address);
  complete_if_over(barrier);
}

/// Bytes that TMA has brought.
void Worker::land_bytes(const char* what, Mbarrier& barrier, std::size_t bytes, Location where) {
  const int64_t pending_bytes = int64_t(barrier.bytes) - int64_t(bytes);
  if (pending_bytes < -kMaxBytes)
    throw Error(describe_call(what, where) + ": " + describe(barrier) + " counts " +
                std::to_string(-pending_bytes) +
                " bytes that landed and were not announced, more than it can (1048575): announce them with "
                "mbarrier_arrive_expect_tx");
  barrier.bytes = int32_t(pending_bytes);
  complete_if_over(barrier);
}

/// Ends the phase if nothing is missing. Whoever waited can run again.
void Worker::complete_if_over(Mbarrier& barrier) {
  if (barrier.pending > 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  if (observer_) observer_->completes(barrier.address);
  barrier.pending = barrier.arrivals;
  progress();
  for (int warp = 0; warp < int(warps_.size()); ++warp) make_ready(warp, barrier.waiting[std::size_t(warp)]);
  barrier.waiting.fill(0);
}

/// A wait of the current thread has found that all phases before the running one are over.
void Worker::pass(Mbarrier& barrier) {
  barrier.passed = true;
  barrier.seen[std::size_t(number_of(*current_))] = barrier.phase;
  if (observer_) observer_->acquires(number_of(*current_), barrier.address);
}

/// Whether the phase of that parity is over. If not, waits for it: until it is, or, if the wait `may_fail`,
/// until no other thread can run.
bool Worker::wait_at_mbarrier(const char* what, const void* address, uint32_t parity, bool may_fail,
                              Location where) {
  const std::size_t number = mbarrier_at(what, address, where);
  if (parity > 1)
    throw Error(describe_call(what, where) + " names parity " + std::to_string(parity) +
                ": it is 0 or 1, phase % 2");
  const uint32_t phase = mbarriers_[number].phase;
  if ((phase & 1) != parity) {
    pass(mbarriers_[number]);
    return true;
  }
  const uint32_t self = 1u << current_->lane;
  const auto warp = std::size_t(current_->warp);
  current_->mbarrier = number;
  current_->parity = parity;
  if (may_fail && options().async == Async::random && random_.below(4) == 0) return false;
  mbarriers_[number].waiting[warp] |= self;
  if (may_fail)
    poll(Wait::mbarrier_poll, what, where);
  else
    suspend(Wait::mbarrier, what, where);
  mbarriers_[number].waiting[warp] &= ~self;
  Mbarrier& barrier = mbarriers_[number];
  // It was asleep when two phases ended, one of which it waited for: only chance, or an order that the kernel
  // does not enforce, could have shown it the first.
  if (barrier.phase > phase + 1) lapped(what, barrier, phase, where);
  if (barrier.phase == phase) return false;
  pass(barrier);
  return true;
}

void mbarrier_init(void* barrier, uint32_t arrivals, Location where) {
  running_worker("mbarrier_init", where).init_mbarrier(barrier, arrivals, where);
}

void fence_mbarrier_init(Location where) { running_worker("fence_mbarrier_init", where).fence_mbarriers(); }

void name_mbarrier(const void* barrier, const char* name, int index, Location where) {
  running_worker("name_mbarrier", where).name_mbarrier(barrier, name, index, where);
}

void mbarrier_arrive(void* barrier, Location where) {
  running_worker("mbarrier_arrive", where).arrive_at_mbarrier("mbarrier_arrive", barrier, 0, where);
}

void mbarrier_arrive_expect_tx(void* barrier, uint32_t bytes, Location where) {
  running_worker("mbarrier_arrive_expect_tx", where)
      .arrive_at_mbarrier("mbarrier_arrive_expect_tx", barrier, bytes, where);
}

bool mbarrier_try_wait(const void* barrier, uint32_t parity, Location where) {
  return running_worker("mbarrier_try_wait", where)
      .wait_at_mbarrier("mbarrier_try_wait", barrier, parity, true, where);
}

void mbarrier_wait(const void* barrier, uint32_t parity, Location where) {
  running_worker("mbarrier_wait", where).wait_at_mbarrier("mbarrier_wait", barrier, parity, false, where);
}

// It orders memory, which is always in order here, and tells TMA of barriers too.
void fence_proxy_async(Location where) {
  Worker& worker = running_worker("fence_proxy_async", where);
  worker.fence_mbarriers();
  if (worker.observer()) worker.observer()->fences_proxy(worker.current_number());
}

}  // namespace flashbook::sim
