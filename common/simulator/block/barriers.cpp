#include "common/simulator/block/barriers.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "common/simulator/block/worker.h"
#include "common/simulator/describe.h"
#include "common/simulator/launch.h"

namespace flashbook::sim {
namespace {

// Reports are separate functions that never return and are not inlined. Their strings would enlarge the stack
// frames, and hundreds of these frames are kept on suspended fibers and compete for the cache.

[[noreturn, gnu::noinline]] void disagree(const char* what, Location where, int barrier, int threads,
                                          Location first, int expected) {
  throw Error("threads disagree about barrier " + std::to_string(barrier) + ": " +
              describe_call(what, where) + " names " + std::to_string(threads) +
              " threads, but the first arrival, at " + to_string(first) + ", " + std::to_string(expected));
}

/// Returns "32 threads", for example, or "the whole block".
std::string describe_count(int threads) {
  return threads == kWholeBlock ? "the whole block" : std::to_string(threads) + " threads";
}

/// Returns a list such as "warps 0, 1, 2".
std::string describe_warps(uint32_t warps) {
  std::string text = (warps & (warps - 1)) == 0 ? "warp " : "warps ";
  for (uint32_t left = warps; left; left &= left - 1)
    text += (left == warps ? "" : ", ") + std::to_string(__builtin_ctz(left));
  return text;
}

[[noreturn, gnu::noinline]] void disagree_in_kind(const char* what, Location where, const char* first_what,
                                                  Location first) {
  throw Error("threads disagree about a barrier: some are in " + describe_call(what, where) +
              ", but the first to arrive was in " + describe_call(first_what, first) +
              ": all threads must execute the same one");
}

[[noreturn, gnu::noinline]] void nobody_waits(const char* what, Location where, int barrier, int threads) {
  throw Error(
      describe_call(what, where) + " is the last of " + std::to_string(threads) + " arrivals at barrier " +
      std::to_string(barrier) +
      ", and no thread waits for them: a wait is missing, or one thread arrives twice where another should "
      "wait in between");
}

[[noreturn, gnu::noinline]] void divergent(const char* what, Location where, const Thread& self,
                                           uint32_t others, const Thread& other) {
  // Two calls on one line are distinguished by their columns.
  const bool one_line = to_string(where) == to_string(other.where);
  const auto describe = [&](const char* call, Location place) {
    return describe_call(call, place) + (one_line ? ":" + std::to_string(place.column) : "");
  };
  throw Error("divergent warp: lane " + std::to_string(self.lane) + " is in " + describe(what, where) +
              ", but " + describe_waiting(others) + " in " + describe(other.what, other.where) +
              ": a warp executes a barrier as one instruction, and an H200 hangs if its lanes arrive "
              "separately. Put one barrier after the branches");
}

}  // namespace

/// The fast path for a lane whose warp already has a lane at the barrier and which is not the last to arrive.
/// Returns false for any other lane.
inline bool Barriers::follows(int number, int threads, const char* what, Location where) {
  if (number < 0 || number >= kBarriers) return false;
  Barrier& barrier = barriers_[std::size_t(number)];
  const Thread& self = scheduler_.current();
  uint32_t& waiting = barrier.waiting[std::size_t(self.warp)];
  const uint32_t own = 1u << self.lane;
  if (!waiting || barrier.expected != threads || barrier.counts || scheduler_.log() ||
      (waiting | own) == scheduler_.alive_lanes(self.warp) || is_full(barrier, barrier.arrived + 1))
    return false;
  const Thread& other = scheduler_.threads()[std::size_t(self.warp * kWarpLanes + __builtin_ctz(waiting))];
  if (!same_place(other.where, where)) return false;
  ++barrier.arrived;
  waiting |= own;
  scheduler_.suspend(*this, what, where);
  return true;
}

void Barriers::sync(const char* what, int number, int threads, Location where) {
  if (!follows(number, threads, what, where)) sync_alone(what, number, threads, where);
}

[[gnu::noinline]] void Barriers::sync_alone(const char* what, int number, int threads, Location where) {
  wait(arrive_in(count_arrival(what, number, threads, where), what, where, false, false), what, where);
}

/// Returns the barrier, after joining its round. `predicate` matters only if `counts` is true.
Barriers::Barrier& Barriers::arrive_in(Barrier& barrier, const char* what, Location where, bool counts,
                                       bool predicate) {
  if (barrier.arrived == 1) {
    barrier.counts = counts;
  } else if (counts != barrier.counts || (counts && std::strcmp(what, barrier.what) != 0)) {
    disagree_in_kind(what, where, barrier.what, barrier.where);
  }
  barrier.yes += predicate;
  return barrier;
}

/// Waits until all threads have arrived. (Always a tail call, so that a waiting thread has only one frame on
/// its stack.)
void Barriers::wait(Barrier& barrier, const char* what, Location where) {
  const Thread& self = scheduler_.current();
  const uint32_t own = 1u << self.lane;
  uint32_t& waiting = barrier.waiting[std::size_t(self.warp)];
  if (waiting) {
    const Thread& other = scheduler_.threads()[std::size_t(self.warp * kWarpLanes + __builtin_ctz(waiting))];
    if (!same_place(other.where, where)) divergent(what, where, self, waiting, other);
  }
  waiting |= own;
  if (scheduler_.log()) [[unlikely]]
    log(EventKind::waits, what, barrier, where);
  if (scheduler_.observer() && waiting == scheduler_.alive_lanes(self.warp))
    tell_of_arriving(barrier, self.warp);
  if (is_full(barrier, barrier.arrived)) {
    complete(barrier, own);
    scheduler_.synchronise();
    return;
  }
  scheduler_.suspend(*this, what, where);
}

/// The next round cannot end before all threads waiting in this one have read the result.
int Barriers::count(const char* what, bool predicate, Location where) {
  wait(arrive_in(count_arrival(what, 0, kWholeBlock, where), what, where, true, predicate), what, where);
  return counted_;
}

void Barriers::arrive(const char* what, int number, int threads, Location where) {
  if (threads == kWholeBlock)
    throw Error(describe_call(what, where) +
                " names 0 threads: an arrival without a wait must give the number of threads that take part");
  Barrier& barrier = count_arrival(what, number, threads, where);
  note_second_arrival(what, number, where);
  if (barrier.arrived == threads &&
      std::all_of(barrier.waiting.begin(), barrier.waiting.end(), [](uint32_t lanes) { return lanes == 0; }))
    nobody_waits(what, where, number, threads);
  if (Observer* observer = scheduler_.observer()) observer->releases(scheduler_.current().number, &barrier);
  if (scheduler_.log()) [[unlikely]]
    log(EventKind::arrives, what, barrier, where);
  if (is_full(barrier, barrier.arrived)) complete(barrier, 0);
}

/// A thread that arrives without waiting may arrive again before the round is complete; it is then counted in
/// place of another thread.
[[gnu::noinline]] void Barriers::note_second_arrival(const char* what, int number, Location where) {
  const Thread& self = scheduler_.current();
  if (last_arrivals_.empty()) last_arrivals_.resize(kBarriers * kMaxWarps);
  Arrival& last = last_arrivals_[std::size_t(number * kMaxWarps + self.warp)];
  if (const uint64_t turn = last_[std::size_t(number)].turn; last.turn != turn) last = {turn, 0};
  const bool again = last.lanes >> self.lane & 1;
  last.lanes |= 1u << self.lane;
  if (!again) return;
  const auto known = std::find_if(second_arrivals_.begin(), second_arrivals_.end(), [&](const auto& one) {
    return one.barrier == number && same_place(one.where, where);
  });
  if (known == second_arrivals_.end())
    second_arrivals_.push_back({number, 1u << self.warp, what, where});
  else
    known->warps |= 1u << self.warp;
}

std::string Barriers::suspects() const {
  std::string text;
  for (const SecondArrival& second : second_arrivals_)
    text += "\n  suspect: " + describe_call(second.what, second.where) + ", where " +
            describe_warps(second.warps) + " arrived at barrier " + std::to_string(second.barrier) +
            " again before its round was complete, and was counted in place of another warp: should it wait "
            "there?";
  return text;
}

/// Counts the current thread's arrival if it follows the rules.
Barriers::Barrier& Barriers::count_arrival(const char* what, int number, int threads, Location where) {
  if (number < 0 || number >= kBarriers)
    throw Error(describe_call(what, where) + " names barrier " + std::to_string(number) +
                ": a block has barriers 0 to 15");
  if (threads < 0 || threads % kWarpLanes != 0)
    throw Error(describe_call(what, where) + " names " + std::to_string(threads) +
                " threads: give a multiple of 32, since whole warps arrive");
  const int block = int(scheduler_.threads().size());
  if (threads > block)
    throw Error(describe_call(what, where) + " waits for " + std::to_string(threads) +
                " threads: the block has " + std::to_string(block));
  const auto counted = [block](int expected) { return expected == kWholeBlock ? block : expected; };
  Barrier& barrier = barriers_[std::size_t(number)];
  if (barrier.arrived == 0) {
    barrier.expected = threads;
    barrier.what = what;
    barrier.where = where;
  } else if (barrier.expected != threads && counted(barrier.expected) != counted(threads)) {
    disagree(what, where, number, counted(threads), barrier.where, counted(barrier.expected));
  }
  if (!(barrier.warps >> scheduler_.current().warp & 1)) {
    require_order(what, number, threads, where);
    barrier.warps |= 1u << scheduler_.current().warp;
  }
  ++barrier.arrived;
  return barrier;
}

/// A barrier counts any arrival. So a warp that took no part in the barrier's last round must have waited for
/// something since that round; otherwise it might have arrived earlier and been counted in it. (A warp that
/// arrived twice in that round is the actual error, which is reported soon.)
void Barriers::require_order(const char* what, int number, int threads, Location where) const {
  const Round& last = last_[std::size_t(number)];
  const Thread& self = scheduler_.current();
  const bool once = last.expected == kWholeBlock || std::popcount(last.warps) * kWarpLanes == last.expected;
  if (last.turn == 0 || !once || last.warps >> self.warp & 1 ||
      scheduler_.has_synchronised_since(self.warp, last.turn))
    return;
  throw Error("warps disagree about barrier " + std::to_string(number) + ": " + describe_call(what, where) +
              " waits for " + describe_count(threads) + ", and " + describe_call(last.what, last.where) +
              " has just waited for " + describe_count(last.expected) + ", without warp " +
              std::to_string(self.warp) + ". Nothing makes this warp wait until " +
              describe_warps(last.warps) +
              " left the barrier: on a GPU it may arrive earlier and be counted in that round. Give one of "
              "the two barriers a different number (__syncthreads is 0), or wait between them");
}

/// Ends the barrier's round and wakes the waiting threads. If the current thread waits as well, `own` is its
/// lane. (Not inlined, like the reports.)
[[gnu::noinline]] void Barriers::complete(Barrier& barrier, uint32_t own) {
  if (Observer* observer = scheduler_.observer()) {
    for (int warp = 0; warp < scheduler_.warps(); ++warp)
      if (!(barrier.told >> warp & 1)) tell_of_arriving(barrier, warp);
    observer->completes(&barrier);
    for (int warp = 0; warp < scheduler_.warps(); ++warp)
      for (uint32_t left = barrier.waiting[std::size_t(warp)]; left; left &= left - 1)
        observer->acquires(warp * kWarpLanes + __builtin_ctz(left), &barrier);
  }
  if (EventLog* log = scheduler_.log()) {
    for (int warp = 0; warp < scheduler_.warps(); ++warp)
      if (barrier.waiting[std::size_t(warp)]) log->converges(warp);
    log->add_warps(scheduler_.current().warp, 1,
                   {EventKind::over, "all have arrived", barrier.where, name_of(barrier)});
  }
  for (int warp = 0; warp < scheduler_.warps(); ++warp) {
    uint32_t others = barrier.waiting[std::size_t(warp)];
    if (warp == scheduler_.current().warp) others &= ~own;
    scheduler_.make_ready(warp, others);
    scheduler_.synchronise(warp, others);
  }
  if (barrier.counts) counted_ = barrier.yes;
  last_[std::size_t(&barrier - barriers_.data())] = {scheduler_.turns(), barrier.expected, barrier.warps,
                                                     barrier.what, barrier.where};
  barrier = {};
}

/// No other lanes of the warp will arrive, so the waiting ones have reconverged.
void Barriers::tell_of_arriving(Barrier& barrier, int warp) const {
  const uint32_t lanes = barrier.waiting[std::size_t(warp)];
  barrier.told |= 1u << warp;
  if (lanes) scheduler_.observer()->converges(warp, lanes);
  for (uint32_t left = lanes; left; left &= left - 1)
    scheduler_.observer()->releases(warp * kWarpLanes + __builtin_ctz(left), &barrier);
}

/// Returns a name such as "barrier 1".
std::string Barriers::name_of(const Barrier& barrier) const {
  return "barrier " + std::to_string(&barrier - barriers_.data());
}

/// Logs an arrival. (Not inlined, like the reports.)
[[gnu::noinline]] void Barriers::log(EventKind kind, const char* what, const Barrier& barrier,
                                     Location where) const {
  const int needed = barrier.expected == kWholeBlock ? scheduler_.alive() : barrier.expected;
  scheduler_.log()->add(scheduler_.current().number, {kind, what, where, name_of(barrier),
                                                      std::to_string(barrier.arrived) + " of " +
                                                          std::to_string(needed) + " threads have arrived"});
}

std::string Barriers::describe_wait(const Thread& thread) const {
  int number = 0;
  while (!(barriers_[std::size_t(number)].waiting[std::size_t(thread.warp)] >> thread.lane & 1)) ++number;
  const Barrier& barrier = barriers_[std::size_t(number)];
  const int needed = barrier.expected == kWholeBlock ? scheduler_.alive() : barrier.expected;
  return ", barrier " + std::to_string(number) + ": " + std::to_string(barrier.arrived) + " of " +
         std::to_string(needed) + " threads arrived";
}

void barrier_sync(const char* what, int barrier, int threads, Location where) {
  (current_worker ? *current_worker : running_worker(what, where))
      .barriers.sync(what, barrier, threads, where);
}

int barrier_count(const char* what, bool predicate, Location where) {
  return running_worker(what, where).barriers.count(what, predicate, where);
}

void barrier_arrive(const char* what, int barrier, int threads, Location where) {
  running_worker(what, where).barriers.arrive(what, barrier, threads, where);
}

void wait_for_launch_before(Location where) {
  Worker& worker = running_worker("wait_for_launch_before", where);
  worker.tell("wait_for_launch_before", where);
  if (worker.observer()) worker.observer()->waits_for_launch_before(worker.current_number());
}

void let_dependents_launch() {
  if (current_worker && current_worker->observer())
    current_worker->observer()->lets_dependents_launch(current_worker->current_number());
}

void memory_fence() {
  if (current_worker) current_worker->tell("__threadfence", {});
  if (current_worker && current_worker->observer())
    current_worker->observer()->fences(current_worker->current_number());
}

}  // namespace flashbook::sim
