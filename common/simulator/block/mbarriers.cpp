#include "common/simulator/block/mbarriers.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "common/simulator/block/worker.h"
#include "common/simulator/describe.h"
#include "common/simulator/launch.h"
#include "common/simulator/mbarrier.h"

namespace flashbook::sim {
namespace {

/// The PTX ISA's limits on arrivals and pending bytes.
constexpr uint32_t kMaxArrivals = (1u << 20) - 1;
constexpr int64_t kMaxBytes = (1 << 20) - 1;

/// The upper half of every barrier's word; the lower half is the barrier's number.
constexpr uint64_t kMark = uint64_t(0x6d626172) << 32;

uint64_t word_at(const void* address) {
  uint64_t word;
  std::memcpy(&word, address, sizeof word);
  return word;
}

// The reports are separate functions that never return, like those in barriers.cpp.

[[noreturn]] void not_a_barrier(const char* what, const void* address, const std::vector<Mbarrier>& known,
                                Location where) {
  const std::string call = describe_call(what, where) + ": ";
  const std::string place = running_worker(what, where).memory.describe(address);
  for (const Mbarrier& barrier : known)
    if (barrier.address == address && barrier.ended.line != 0)
      throw Error(call + "mbarrier_inval at " + to_string(barrier.ended) +
                  " has invalidated the mbarrier at " + place + ": initialise it again");
    else if (barrier.address == address)
      throw Error(call + "the mbarrier at " + place + ", initialised at " + to_string(barrier.where) +
                  ", has been overwritten: look for a tile or an array that overlaps it");
  if (word_at(address) == ~uint64_t(0))
    throw Error(call + "the mbarrier at " + place +
                " is not initialised: one thread must call mbarrier_init, followed by a __syncthreads before "
                "others use it");
  throw Error(call + "there is no mbarrier at " + place +
              ": mbarrier_init creates one, and an mbarrier must not be copied or overwritten");
}

[[noreturn]] void twice_initialised(const Mbarrier& barrier, Location where) {
  throw Error(describe_call("mbarrier_init", where) + ": " + describe(barrier) +
              " was already initialised, by thread " + std::to_string(barrier.initialiser) + " at " +
              to_string(barrier.where) +
              ": initialise it only once, or call mbarrier_inval before doing so again");
}

/// Returns ". These threads last arrived in phase 3: 128-135", or similar; empty if none did.
std::string describe_arrivals(const Mbarrier& barrier, uint32_t phase) {
  std::string text;
  const int count = int(barrier.arrived.size());
  const auto arrived = [&](int thread) { return barrier.arrived[std::size_t(thread)] == phase + 1; };
  for (int first = 0; first < count; ++first) {
    if (!arrived(first)) continue;
    int last = first;
    while (last + 1 < count && arrived(last + 1)) ++last;
    text +=
        (text.empty() ? "" : ", ") + std::to_string(first) + (last > first ? "-" + std::to_string(last) : "");
    first = last;
  }
  return text.empty() ? "" : ". These threads last arrived in phase " + std::to_string(phase) + ": " + text;
}

[[noreturn]] void used_too_early(const char* what, const Mbarrier& barrier, Location where) {
  throw Error(describe_call(what, where) + ": " + describe(barrier) +
              " is used before the mbarrier_init at " + to_string(barrier.where) + ", by thread " +
              std::to_string(barrier.initialiser) +
              ", is visible to this thread: put a __syncthreads between them");
}

[[noreturn]] void too_many_arrivals(const char* what, const Mbarrier& barrier, Location where) {
  throw Error(describe_call(what, where) + ": one arrival too many at " + describe(barrier) +
              ". All expected arrivals have been made: " + describe_state(barrier) +
              ". Either more threads arrive than mbarrier_init at " + to_string(barrier.where) +
              " expects, or this thread arrives for the next phase before the current one has completed: did "
              "its wait "
              "return too early?");
}

[[noreturn]] void too_many_bytes(const char* what, const Mbarrier& barrier, int64_t bytes, Location where) {
  throw Error(
      describe_call(what, where) + ": " + describe(barrier) + " would have " + std::to_string(bytes) +
      " pending bytes, more than an mbarrier can count (1048575): use smaller boxes or more barriers");
}

/// Returns ". The first to arrive in phase 4, too early, was thread 128 in mbarrier_arrive at kernel.cuh:12",
/// for example; empty if that was too long ago.
std::string describe_early(const Mbarrier& barrier, uint32_t phase) {
  const Arrival& first = barrier.first[phase % barrier.first.size()];
  if (first.phase != phase + 1) return "";
  return ". The first to arrive in phase " + std::to_string(phase) + ", too early, was thread " +
         std::to_string(first.thread) + " in " + describe_call(first.what, first.where);
}

[[noreturn]] void lapped(const char* what, const Mbarrier& barrier, uint32_t phase, Location where) {
  throw Error(
      describe_call(what, where) + ": lapped. The thread waits for the end of phase " +
      std::to_string(phase) + " of " + describe(barrier) + ", and phase " +
      std::to_string(barrier.phase - 1) +
      " has completed as well before the thread could continue; on a GPU the thread may miss its phase and "
      "wait for a later one. The thread that lets the barrier advance must wait for this one first" +
      describe_early(barrier, phase + 1) + describe_arrivals(barrier, barrier.phase - 1));
}

/// Advice for a phase that does not complete while no load is in flight. `seen`: the number of completed
/// phases that the waiting thread has observed.
std::string advice(const Mbarrier& barrier, uint32_t seen) {
  if (barrier.bytes < 0) return "Announce the bytes of all loads";
  if (barrier.pending == 0) return "More bytes were announced than the loads' boxes contain";
  if (barrier.phase == 0 && barrier.pending == barrier.arrivals && !barrier.passed)
    return "No thread has arrived yet. The first wait for an empty stage must use parity 1; the first wait "
           "for a "
           "full stage uses parity 0, and another thread must arrive";
  if (seen < barrier.phase && seen % 2 == barrier.phase % 2)
    return "If this wait is for phase " + std::to_string(seen) +
           ", the first one that this thread has not seen complete, the barrier has moved on without it "
           "(lapped): the thread that lets it advance must wait for this one first" +
           describe_early(barrier, seen + 1);
  return "Find the threads that should arrive, and compare their number with mbarrier_init's count";
}

}  // namespace

std::string describe(const Mbarrier& barrier) {
  if (!barrier.name) return "the mbarrier at " + current_worker->memory.describe(barrier.address);
  return std::string("mbarrier ") + barrier.name +
         (barrier.index < 0 ? "" : "[" + std::to_string(barrier.index) + "]");
}

std::string describe_state(const Mbarrier& barrier) {
  std::string bytes = std::to_string(barrier.bytes) + " bytes pending";
  if (barrier.bytes < 0)
    bytes = std::to_string(-barrier.bytes) + " more bytes landed than were announced in this phase";
  return "it is in phase " + std::to_string(barrier.phase) + " (parity " + std::to_string(barrier.phase & 1) +
         "), " + std::to_string(barrier.pending) + " of " + std::to_string(barrier.arrivals) +
         " arrivals pending, " + bytes;
}

void Mbarriers::begin_block() {
  barriers_.clear();
  stale_wait_.reset();
  second_arrival_.reset();
  waited_.assign(scheduler_.threads().size(), {});
  waits_.assign(std::size_t(scheduler_.warps()), 0);
}

std::size_t Mbarriers::number_at(const char* what, const void* address, Location where) const {
  require_shared(what, address, sizeof(uint64_t), sizeof(uint64_t), where);
  const uint64_t number = word_at(address) ^ kMark;
  if (number >= barriers_.size() || barriers_[number].address != address)
    not_a_barrier(what, address, barriers_, where);
  return number;
}

void Mbarriers::init(void* address, uint32_t arrivals, Location where) {
  require_shared("mbarrier_init", address, sizeof(uint64_t), sizeof(uint64_t), where);
  if (arrivals < 1 || arrivals > kMaxArrivals)
    throw Error(describe_call("mbarrier_init", where) + " names " + std::to_string(arrivals) +
                " arrivals: give 1 to 1048575");
  const uint64_t known = word_at(address) ^ kMark;
  if (known < barriers_.size() && barriers_[known].address == address)
    twice_initialised(barriers_[known], where);
  // This shared memory may have held another barrier: its old record would describe the wrong one.
  std::size_t number = 0;
  while (number < barriers_.size() && barriers_[number].address != address) ++number;
  if (number == barriers_.size()) barriers_.emplace_back();
  barriers_[number] = {.address = address,
                       .arrivals = arrivals,
                       .pending = arrivals,
                       .initialiser = scheduler_.current().number,
                       .turn = scheduler_.turns(),
                       .where = where,
                       .seen = std::vector<uint32_t>(scheduler_.threads().size()),
                       .arrived = std::vector<uint32_t>(scheduler_.threads().size()),
                       .waits_before = std::vector<uint32_t>(scheduler_.threads().size())};
  const uint64_t word = kMark | number;
  std::memcpy(address, &word, sizeof word);
  if (scheduler_.log()) log(EventKind::arrives, "mbarrier_init", barriers_[number], where);
}

void Mbarriers::inval(void* address, Location where) {
  Mbarrier& barrier = barriers_[number_at("mbarrier_inval", address, where)];
  require_order("mbarrier_inval", barrier, where);
  if (barrier.bytes != 0 ||
      std::any_of(barrier.waiting.begin(), barrier.waiting.end(), [](uint32_t lanes) { return lanes != 0; }))
    throw Error(describe_call("mbarrier_inval", where) + ": " + describe(barrier) + " is still in use: " +
                describe_state(barrier) + ". Wait for the phase and call __syncthreads first");
  barrier.ended = where;
  std::memset(address, 0xff, sizeof(uint64_t));
}

void Mbarriers::name(const void* address, const char* name, int index, Location where) {
  Mbarrier& barrier = barriers_[number_at("name_mbarrier", address, where)];
  const std::string unnamed = scheduler_.log() ? describe(barrier) : "";
  barrier.name = name;
  barrier.index = index;
  if (scheduler_.log()) scheduler_.log()->rename(unnamed, describe(barrier));
}

void Mbarriers::fence() {
  const int self = scheduler_.current().number;
  for (Mbarrier& barrier : barriers_)
    if (barrier.initialiser == self) barrier.fenced = true;
}

void Mbarriers::arrive(const char* what, const void* address, uint32_t bytes, Location where) {
  Mbarrier& barrier = barriers_[number_at(what, address, where)];
  const int64_t pending_bytes = int64_t(barrier.bytes) + bytes;
  if (pending_bytes > kMaxBytes) too_many_bytes(what, barrier, pending_bytes, where);
  require_order(what, barrier, where);
  const int self = scheduler_.current().number;
  if (barrier.pending == 0) too_many_arrivals(what, barrier, where);
  uint32_t& arrived = barrier.arrived[std::size_t(self)];
  uint32_t& waits_before = barrier.waits_before[std::size_t(self)];
  const uint32_t waits = waits_of(scheduler_.current());
  const bool same_phase = arrived == barrier.phase + 1;
  if (arrived > 0 && (same_phase || waits == waits_before) && !second_arrival_)
    second_arrival_ = {std::size_t(&barrier - barriers_.data()), self, barrier.phase, where, same_phase};
  arrived = barrier.phase + 1;
  waits_before = waits;
  if (Arrival& first = barrier.first[barrier.phase % barrier.first.size()]; first.phase != arrived)
    first = {arrived, self, what, where};
  barrier.bytes = int32_t(pending_bytes);
  --barrier.pending;
  if (Observer* observer = scheduler_.observer()) observer->releases(self, barrier.address);
  if (scheduler_.log()) [[unlikely]]
    log(EventKind::arrives, what, barrier, where);
  complete_if_over(barrier);
}

void Mbarriers::arrive_for(std::size_t number, const Arrival& from) {
  Mbarrier& barrier = barriers_[number];
  if (barrier.pending == 0) too_many_arrivals(from.what, barrier, from.where);
  --barrier.pending;
  if (Observer* observer = scheduler_.observer()) observer->releases(from.thread, barrier.address);
  if (EventLog* log = scheduler_.log())
    log->add_warps(from.thread / kWarpLanes, 1,
                   {EventKind::arrives, from.what, from.where, describe(barrier), describe_state(barrier)},
                   false);
  complete_if_over(barrier);
}

void Mbarriers::land_bytes(std::size_t number, std::size_t bytes, const Arrival& from) {
  Mbarrier& barrier = barriers_[number];
  const char* const what = from.what;
  const Location where = from.where;
  const int64_t pending_bytes = int64_t(barrier.bytes) - int64_t(bytes);
  if (pending_bytes < -kMaxBytes)
    throw Error(
        describe_call(what, where) + ": " + describe(barrier) + ": " + std::to_string(-pending_bytes) +
        " bytes have arrived unannounced, but an mbarrier can count at most 1048575: announce them with "
        "mbarrier_arrive_expect_tx");
  barrier.bytes = int32_t(pending_bytes);
  barrier.brought = from;
  if (EventLog* log = scheduler_.log())
    log->add_warps(
        -1, 1, {EventKind::arrives, "bytes land", where, describe(barrier), describe_state(barrier)}, false);
  complete_if_over(barrier);
}

/// Completes the phase if nothing is missing, and wakes the threads that wait for it.
void Mbarriers::complete_if_over(Mbarrier& barrier) {
  if (barrier.pending > 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  if (Observer* observer = scheduler_.observer()) observer->completes(barrier.address);
  barrier.pending = barrier.arrivals;
  if (EventLog* log = scheduler_.log())
    log->add_warps(
        -1, 1, {EventKind::over, "the phase is over", {}, describe(barrier), describe_state(barrier)}, false);
  scheduler_.progress();
  for (int warp = 0; warp < scheduler_.warps(); ++warp)
    scheduler_.make_ready(warp, barrier.waiting[std::size_t(warp)]);
  barrier.waiting.fill(0);
}

/// The lanes of the initialising thread's warp see the barrier after __syncwarp; other warps see it after
/// they have waited at a barrier.
void Mbarriers::require_order(const char* what, const Mbarrier& barrier, Location where) const {
  const Thread& self = scheduler_.current();
  if (barrier.initialiser / kWarpLanes != self.warp && scheduler_.synchronised() <= barrier.turn)
    used_too_early(what, barrier, where);
}

/// Notes that a wait of the current thread has observed the completion of all phases before the current one.
void Mbarriers::pass(Mbarrier& barrier) {
  barrier.passed = true;
  scheduler_.synchronise();
  ++waits_[std::size_t(scheduler_.current().warp)];
  barrier.seen[std::size_t(scheduler_.current().number)] = barrier.phase;
  if (Observer* observer = scheduler_.observer())
    observer->acquires(scheduler_.current().number, barrier.address);
}

/// Returns how often the thread, or another thread on behalf of its warp, has waited. Only changes of this
/// number matter.
uint32_t Mbarriers::waits_of(const Thread& thread) const {
  return waits_[std::size_t(thread.warp)] + uint32_t(scheduler_.synchronised());
}

bool Mbarriers::wait(const char* what, const void* address, uint32_t parity, bool may_fail, Location where) {
  const std::size_t number = number_at(what, address, where);
  if (parity > 1)
    throw Error(describe_call(what, where) + " names parity " + std::to_string(parity) +
                ": use phase % 2, which is 0 or 1");
  require_order(what, barriers_[number], where);
  const uint32_t phase = barriers_[number].phase;
  if ((phase & 1) != parity) {
    const int self = scheduler_.current().number;
    if (!stale_wait_ && phase > 0 && barriers_[number].seen[std::size_t(self)] == phase)
      stale_wait_ = {number, self, phase - 1, where};
    if (scheduler_.log()) [[unlikely]]
      log(EventKind::passes, what, barriers_[number], where, int(parity));
    pass(barriers_[number]);
    return true;
  }
  const Thread& self = scheduler_.current();
  const uint32_t own = 1u << self.lane;
  const auto warp = std::size_t(self.warp);
  Waited& waited = waited_[std::size_t(self.number)];
  const bool has_tried = waited.barrier == number && waited.tried == phase + 1;
  waited = {number, parity, may_fail ? phase + 1 : 0};
  // A kernel must retry a wait that may report an unfinished phase, so such a wait fails at the first
  // attempt, or at random.
  if (may_fail && (options().async == Async::random ? scheduler_.random().below(4) == 0 : !has_tried))
    return false;
  barriers_[number].waiting[warp] |= own;
  if (scheduler_.log()) [[unlikely]]
    log(EventKind::waits, what, barriers_[number], where, int(parity));
  if (may_fail)
    scheduler_.poll(*this, what, where);
  else
    scheduler_.suspend(*this, what, where);
  barriers_[number].waiting[warp] &= ~own;
  Mbarrier& barrier = barriers_[number];
  // The thread was waiting for the first of two phases that completed while it slept. On a GPU it would have
  // observed that phase only by chance, or because of an order that the kernel does not enforce.
  if (barrier.phase > phase + 1) lapped(what, barrier, phase, where);
  if (barrier.phase == phase) return false;
  if (scheduler_.log()) [[unlikely]]
    log(EventKind::passes, what, barrier, where, int(parity));
  pass(barrier);
  return true;
}

/// Logs an operation of the current thread on a barrier. (Not inlined, like the reports.)
[[gnu::noinline]] void Mbarriers::log(EventKind kind, const char* what, const Mbarrier& barrier,
                                      Location where, int parity) const {
  scheduler_.log()->add(
      scheduler_.current().number,
      {kind, what, where, describe(barrier),
       (parity < 0 ? "" : "for parity " + std::to_string(parity) + ": ") + describe_state(barrier)});
}

std::string Mbarriers::describe_wait(const Thread& thread) const {
  const Waited& waited = waited_[std::size_t(thread.number)];
  const Mbarrier& barrier = barriers_[waited.barrier];
  return ", " + describe(barrier) + " for parity " + std::to_string(waited.parity) + ": " +
         describe_state(barrier) + ". " + advice(barrier, barrier.seen[std::size_t(thread.number)]);
}

std::string Mbarriers::suspects() const {
  std::string text;
  const auto add = [&](const char* what, const Suspect& suspect, const std::string& did) {
    text += "\n  suspect: " + describe_call(what, suspect.where) + ", thread " +
            std::to_string(suspect.thread) + " " + did + " phase " + std::to_string(suspect.phase) + " of " +
            describe(barriers_[suspect.barrier]);
  };
  if (stale_wait_) {
    add("a wait", *stale_wait_, "waited again for");
    text += ", which it had already seen complete: does the parity flip every round?";
  }
  if (second_arrival_) {
    add("an arrival", *second_arrival_,
        second_arrival_->same_phase ? "arrived a second time in"
                                    : "arrived a second time, without a wait in between, in");
    text += ": is one of the two redundant?";
  }
  return text;
}

std::string Mbarriers::missing_bytes() const {
  for (const Mbarrier& barrier : barriers_)
    if (barrier.pending == 0 && barrier.bytes > 0)
      return ". " + describe(barrier) + " lacks " + std::to_string(barrier.bytes) +
             " bytes that were announced but that no load delivers: compare mbarrier_arrive_expect_tx with "
             "the "
             "boxes of the loads";
  return "";
}

std::string Mbarriers::end_error() const {
  for (const Mbarrier& barrier : barriers_)
    if (barrier.bytes != 0)
      return " ends while " + describe(barrier) +
             (barrier.bytes > 0
                  ? " waits for bytes that no load delivers: "
                  : " has received bytes that were not announced with mbarrier_arrive_expect_tx: ") +
             describe_state(barrier) +
             (barrier.bytes > 0 ? ""
                                : ". The last ones came from " +
                                      describe_call(barrier.brought.what, barrier.brought.where) +
                                      " by thread " + std::to_string(barrier.brought.thread));
  return "";
}

void mbarrier_init(void* barrier, uint32_t arrivals, Location where) {
  running_worker("mbarrier_init", where).mbarriers.init(barrier, arrivals, where);
}

void mbarrier_inval(void* barrier, Location where) {
  running_worker("mbarrier_inval", where).mbarriers.inval(barrier, where);
}

void fence_mbarrier_init(Location where) {
  Worker& worker = running_worker("fence_mbarrier_init", where);
  worker.mbarriers.fence();
  worker.tell("fence_mbarrier_init", where);
}

void name_mbarrier(const void* barrier, const char* name, int index, Location where) {
  running_worker("name_mbarrier", where).mbarriers.name(barrier, name, index, where);
}

void mbarrier_arrive(void* barrier, Location where) {
  running_worker("mbarrier_arrive", where).mbarriers.arrive("mbarrier_arrive", barrier, 0, where);
}

void mbarrier_arrive_expect_tx(void* barrier, uint32_t bytes, Location where) {
  constexpr const char* kWhat = "mbarrier_arrive_expect_tx";
  running_worker(kWhat, where).mbarriers.arrive(kWhat, barrier, bytes, where);
}

bool mbarrier_try_wait(const void* barrier, uint32_t parity, Location where) {
  constexpr const char* kWhat = "mbarrier_try_wait";
  return running_worker(kWhat, where).mbarriers.wait(kWhat, barrier, parity, true, where);
}

bool mbarrier_test_wait(const void* barrier, uint32_t parity, Location where) {
  constexpr const char* kWhat = "mbarrier_test_wait";
  return running_worker(kWhat, where).mbarriers.wait(kWhat, barrier, parity, true, where);
}

void mbarrier_wait(const void* barrier, uint32_t parity, Location where) {
  running_worker("mbarrier_wait", where).mbarriers.wait("mbarrier_wait", barrier, parity, false, where);
}

// Handles a fence. Memory is always in order here, so the fence only makes barriers visible to TMA.
void fence_proxy_async(Location where) {
  Worker& worker = running_worker("fence_proxy_async", where);
  worker.mbarriers.fence();
  worker.tell("fence_proxy_async", where);
  if (worker.observer()) worker.observer()->fences_proxy(worker.current_number(), Proxied::shared);
}

void fence_proxy_async_global(Location where) {
  Worker& worker = running_worker("fence_proxy_async_global", where);
  worker.tell("fence_proxy_async_global", where);
  if (worker.observer()) worker.observer()->fences_proxy(worker.current_number(), Proxied::global);
}

}  // namespace flashbook::sim
