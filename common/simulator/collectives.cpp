/// \file
/// Barriers, shuffles and votes: what threads wait for each other in.
#include <string>
#include <string_view>

#include "common/simulator/scheduler.h"

namespace flashbook::sim {
namespace {

// The reports are functions of their own that never return: their strings would bloat the frames of the
// callers, and hundreds of these frames wait on the fibers' stacks and compete for the cache.

[[noreturn]] void outside_a_kernel(const char* what, Location where) {
  throw Error(describe_call(what, where) + " was called outside a kernel: launch the kernel instead");
}

[[noreturn]] void not_in_mask(const Collective& collective, Location where, uint32_t mask, int lane) {
  throw Error(describe_call(collective, where, mask) + " is called by lane " + std::to_string(lane) +
              ", which is not in the mask");
}

[[noreturn]] void divergent(const Collective& collective, Location where, uint32_t mask, int lane,
                            const Gathering& other) {
  throw Error("divergent warp: lane " + std::to_string(lane) + " is in " +
              describe_call(collective, where, mask) + ", but " + describe_lanes(other.arrived) +
              " wait for it in " + describe_call(*other.collective, other.where, other.mask));
}

[[noreturn]] void disagree(const char* what, Location where, int barrier, int threads, Location first,
                           int expected) {
  throw Error("threads disagree about barrier " + std::to_string(barrier) + ": " +
              describe_call(what, where) + " names " + std::to_string(threads) +
              " threads, the first to arrive, at " + to_string(first) + ", " + std::to_string(expected));
}

[[noreturn]] void lanes_missing(const Gathering& gathering) {
  throw Error(describe_call(gathering.collective->name, gathering.where) + " needs the whole warp: " +
              describe_lanes(~gathering.arrived) + " exited before or never existed");
}

bool same_place(Location a, Location b) {
  return a.line == b.line && (a.file == b.file || std::string_view(a.file) == b.file);
}

}  // namespace

Worker& running_worker(const char* what, Location where) {
  if (!current_worker) outside_a_kernel(what, where);
  return *current_worker;
}

// Barriers.

void barrier_sync(const char* what, int barrier, int threads, Location where) {
  running_worker(what, where).sync(what, barrier, threads, where);
}

void barrier_arrive(const char* what, int barrier, int threads, Location where) {
  running_worker(what, where).arrive(what, barrier, threads, where);
}

void Worker::sync(const char* what, int number, int threads, Location where) {
  Barrier& barrier = arrive_at(what, number, threads, where);
  const uint32_t self = 1u << current_->lane;
  if (complete_if_full(barrier, self)) return;
  barrier.waiting[std::size_t(current_->warp)] |= self;
  current_->barrier = number;
  suspend(Wait::barrier, what, where);
}

void Worker::arrive(const char* what, int number, int threads, Location where) {
  if (threads == kWholeBlock)
    throw Error(describe_call(what, where) +
                " names 0 threads: who arrives without waiting must say how many take part");
  complete_if_full(arrive_at(what, number, threads, where));
}

/// Counts the current thread's arrival, if it keeps the rules.
Barrier& Worker::arrive_at(const char* what, int number, int threads, Location where) {
  if (number < 0 || number >= kBarriers)
    throw Error(describe_call(what, where) + " names barrier " + std::to_string(number) +
                ": a block has barriers 0 to 15");
  if (threads < 0 || threads % kWarpLanes != 0)
    throw Error(describe_call(what, where) + " names " + std::to_string(threads) +
                " threads: whole warps arrive, so a multiple of 32");
  const int block = int(threads_.size());
  if (threads > block)
    throw Error(describe_call(what, where) + " waits for " + std::to_string(threads) +
                " threads: the block has " + std::to_string(block));
  const auto counted = [block](int expected) { return expected == kWholeBlock ? block : expected; };
  Barrier& barrier = barriers_[std::size_t(number)];
  if (barrier.arrived == 0) {
    barrier.expected = threads;
    barrier.where = where;
  } else if (counted(barrier.expected) != counted(threads)) {
    disagree(what, where, number, counted(threads), barrier.where, counted(barrier.expected));
  }
  ++barrier.arrived;
  if (observer_) observer_->releases(number_of(*current_), &barrier);
  return barrier;
}

/// Ends the barrier's round if everybody is there. Whoever waited can run again.
bool Worker::complete_if_full(Barrier& barrier, uint32_t own) {
  const int needed = barrier.expected == kWholeBlock ? alive_ : barrier.expected;
  if (barrier.arrived == 0 || barrier.arrived < needed) return false;
  if (observer_) observer_->completes(&barrier);
  for (int warp = 0; warp < int(warps_.size()); ++warp) {
    const uint32_t waiting = barrier.waiting[std::size_t(warp)];
    if (observer_) tell_of_acquiring(warp, waiting | (warp == current_->warp ? own : 0), &barrier);
    make_ready(warp, waiting);
  }
  barrier = {};
  return true;
}

/// These lanes have waited for the object's round and are at one place now.
void Worker::tell_of_acquiring(int warp, uint32_t lanes, const void* object) {
  for (uint32_t left = lanes; left; left &= left - 1)
    observer_->acquires(warp * kWarpLanes + __builtin_ctz(left), object);
  if (lanes) observer_->converges(warp, lanes);
}

// Warps.

void warp_collective(const Collective& collective, uint32_t mask, void* operand, Location where) {
  running_worker(collective.name, where).gather(collective, mask, operand, where);
}

void Worker::gather(const Collective& collective, uint32_t mask, void* operand, Location where) {
  const uint32_t self = 1u << current_->lane;
  if (!(mask & self)) not_in_mask(collective, where, mask, current_->lane);
  require_together(collective.name, where);
  Warp& warp = warps_[std::size_t(current_->warp)];
  warp.operands[std::size_t(current_->lane)] = operand;

  std::size_t mine = warp.gatherings.size();
  for (std::size_t i = 0; i < warp.gatherings.size(); ++i) {
    const Gathering& other = warp.gatherings[i];
    if (other.collective == &collective && other.mask == mask &&
        (!collective.aligned || same_place(other.where, where))) {
      mine = i;
    } else if ((other.mask & self) && (other.arrived & mask)) {
      // They wait for this lane, and this lane would wait for them.
      divergent(collective, where, mask, current_->lane, other);
    }
  }
  if (mine == warp.gatherings.size()) warp.gatherings.push_back({&collective, mask, 0, where});
  warp.gatherings[mine].arrived |= self;
  if (complete_if_full(warp, mine)) return;
  current_->mask = mask;
  suspend(Wait::warp, collective.name, where);
}

/// Computes a collective if every lane it was called for is there or has exited. The lanes that waited can
/// run again.
bool Worker::complete_if_full(Warp& warp, std::size_t gathering) {
  const Gathering full = warp.gatherings[gathering];
  if ((full.mask & warp.alive) != full.arrived) return false;
  if (full.collective->aligned && full.arrived != kAllLanes) lanes_missing(full);
  warp.gatherings[gathering] = warp.gatherings.back();
  warp.gatherings.pop_back();
  if (observer_) {
    observer_->converges(current_->warp, full.arrived);
    if (full.collective == &kSyncWarp) observer_->joins(current_->warp, full.arrived);
  }
  full.collective->combine(warp.operands.data(), full.arrived, full.where);
  make_ready(current_->warp, full.arrived & ~(1u << current_->lane));
  return true;
}

int lane() { return current_worker ? current_worker->current().lane : 0; }

// Shuffles and votes.

void shuffle_reads_absent_lane(const Collective& collective, Location where, int reader, int source) {
  throw Error(describe_call(collective.name, where) + ": lane " + std::to_string(reader) + " reads lane " +
              std::to_string(source) + ", which is not in the mask or has exited");
}

void wrong_shuffle_width(const Collective& collective, int width, Location where) {
  throw Error(describe_call(collective.name, where) + " has width " + std::to_string(width) +
              ": use 1, 2, 4, 8, 16 or 32");
}

namespace {

/// One lane's part in a vote.
struct Vote {
  bool predicate;   // in
  uint32_t ballot;  // out
};

void ballot(void* const* operands, uint32_t lanes, Location) {
  uint32_t result = 0;
  for (uint32_t left = lanes; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    result |= uint32_t(static_cast<Vote*>(operands[lane])->predicate) << lane;
  }
  for (uint32_t left = lanes; left; left &= left - 1)
    static_cast<Vote*>(operands[__builtin_ctz(left)])->ballot = result;
}

}  // namespace

const Collective kBallot{"__ballot_sync", &ballot};
const Collective kAny{"__any_sync", &ballot};
const Collective kAll{"__all_sync", &ballot};
const Collective kSyncWarp{"__syncwarp", [](void* const*, uint32_t, Location) {}};

uint32_t vote(const Collective& which, uint32_t mask, bool predicate, Location where) {
  Vote mine{predicate, 0};
  warp_collective(which, mask, &mine, where);
  return mine.ballot;
}

}  // namespace flashbook::sim
