#include "common/simulator/block/warps.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "common/simulator/block/describe.h"
#include "common/simulator/block/worker.h"
#include "common/simulator/launch.h"

namespace flashbook::sim {
namespace {

// The reports are functions of their own that never return, as in barriers.cpp.

[[noreturn, gnu::noinline]] void not_in_mask(const Collective& collective, Location where, uint32_t mask,
                                             int lane) {
  throw Error(describe_call(collective, where, mask) + " is called by lane " + std::to_string(lane) +
              ", which is not in the mask");
}

[[noreturn, gnu::noinline]] void divergent(const Collective& collective, Location where, uint32_t mask,
                                           int lane, const Gathering& other) {
  throw Error("divergent warp: lane " + std::to_string(lane) + " is in " +
              describe_call(collective, where, mask) + ", but " + describe_waiting(other.arrived) +
              " for it in " + describe_call(*other.collective, other.where, other.mask));
}

[[noreturn, gnu::noinline]] void lanes_missing(const Gathering& gathering) {
  throw Error(describe_call(gathering.collective->name, gathering.where) + " needs the whole warp: " +
              describe_lanes(~gathering.arrived) + " exited before or never existed");
}

}  // namespace

void Warps::begin_block() {
  warps_.resize(std::size_t(scheduler_.warps()));
  for (Warp& warp : warps_) {
    warp.gatherings.clear();
    warp.together.clear();
  }
}

[[gnu::noinline]] void Warps::gather(const Collective& collective, uint32_t mask, void* operand,
                                     Location where) {
  const Thread& self = scheduler_.current();
  const uint32_t own = 1u << self.lane;
  if (!(mask & own)) not_in_mask(collective, where, mask, self.lane);
  warpgroups_.require_together(collective.name, where);
  Warp& warp = warps_[std::size_t(self.warp)];
  warp.operands[std::size_t(self.lane)] = operand;

  std::size_t mine = warp.gatherings.size();
  for (std::size_t i = 0; i < warp.gatherings.size(); ++i) {
    const Gathering& other = warp.gatherings[i];
    if (other.collective == &collective && other.mask == mask &&
        (!collective.aligned || same_place(other.where, where))) {
      mine = i;
    } else if ((other.mask & own) && (other.arrived & mask)) {
      // They wait for this lane, and this lane would wait for them.
      divergent(collective, where, mask, self.lane, other);
    }
  }
  if (mine == warp.gatherings.size()) warp.gatherings.push_back({&collective, mask, 0, where});
  warp.gatherings[mine].arrived |= own;
  if (is_full(warp.gatherings[mine], self.warp))
    complete(warp, mine);
  else
    scheduler_.suspend(*this, collective.name, where);
}

/// Most lanes follow another one to the same place, and others will follow them: they need no frame here that
/// would be saved while they wait.
void Warps::take_part(const Collective& collective, uint32_t mask, void* operand, Location where) {
  const Thread& self = scheduler_.current();
  Warp& warp = warps_[std::size_t(self.warp)];
  if (warp.gatherings.size() != 1) return gather(collective, mask, operand, where);
  Gathering& gathering = warp.gatherings.front();
  const uint32_t own = 1u << self.lane, arrived = gathering.arrived | own;
  if (gathering.collective != &collective || gathering.mask != mask || !(mask & own) ||
      (mask & scheduler_.alive_lanes(self.warp)) == arrived ||
      (collective.aligned && !is_same_call(gathering.where, where)) || warpgroups_.is_gathering())
    return gather(collective, mask, operand, where);
  gathering.arrived = arrived;
  warp.operands[std::size_t(self.lane)] = operand;
  scheduler_.suspend(*this, collective.name, where);
}

/// Whether every lane that a collective was called for is there or has exited.
bool Warps::is_full(const Gathering& gathering, int warp) const {
  return (gathering.mask & scheduler_.alive_lanes(warp)) == gathering.arrived;
}

/// Computes a collective of the current thread's warp. The lanes that waited can run again.
[[gnu::noinline]] void Warps::complete(Warp& warp, std::size_t gathering) {
  const Thread& self = scheduler_.current();
  const Gathering full = warp.gatherings[gathering];
  if (full.collective->aligned && full.arrived != kAllLanes) lanes_missing(full);
  warp.gatherings[gathering] = warp.gatherings.back();
  warp.gatherings.pop_back();
  if (Observer* observer = scheduler_.observer()) {
    observer->converges(self.warp, full.arrived);
    if (full.collective == &kSyncWarp) observer->joins(self.warp, full.arrived);
  }
  if (EventLog* log = scheduler_.log()) {
    // Of setmaxnreg, for which lanes meet twice, the pool tells.
    if (const std::string_view name = full.collective->name; !name.starts_with("setmaxnreg"))
      log->add_warps(self.warp, 1, {EventKind::does, name, full.where}, true, full.arrived);
    log->converges(self.warp);
  }
  full.collective->combine(warp.operands.data(), full.arrived, full.where);
  scheduler_.make_ready(self.warp, full.arrived & ~(1u << self.lane));
}

void Warps::leave() {
  const int number = scheduler_.current().warp;
  Warp& warp = warps_[std::size_t(number)];
  for (std::size_t i = warp.gatherings.size(); i-- > 0;)
    if (is_full(warp.gatherings[i], number)) complete(warp, i);
}

/// Lanes that come to the same place while others of the block can still run are taken to be together.
uint32_t Warps::active(Location where) {
  Warp& warp = warps_[std::size_t(scheduler_.current().warp)];
  const auto lane = std::size_t(scheduler_.current().lane);
  const auto here = [&] {
    return std::find_if(warp.together.begin(), warp.together.end(),
                        [&](const Together& other) { return same_place(other.where, where); });
  };
  if (here() == warp.together.end()) warp.together.push_back({where, 0});
  here()->lanes |= 1u << lane;
  warp.active[lane] = 0;
  scheduler_.progress();
  scheduler_.poll(*this, "__activemask", where);
  if (warp.active[lane] == 0) {  // the first of them to go on
    const uint32_t all = here()->lanes;
    warp.together.erase(here());
    const auto half = [&] { return uint32_t(scheduler_.random().below(1 << 16)); };
    const uint32_t some = options().async == Async::random ? all & (half() << 16 | half()) : all;
    for (uint32_t left = all; left; left &= left - 1) {
      const int of = __builtin_ctz(left);
      warp.active[std::size_t(of)] = some >> of & 1 ? some : all & ~some;
    }
  }
  return warp.active[lane];
}

std::string Warps::describe_wait(const Thread& thread) const {
  for (const Gathering& gathering : gatherings(thread.warp))
    if (gathering.arrived >> thread.lane & 1)
      return " with mask " + describe_mask(gathering.mask) + ": " +
             describe_lanes(gathering.mask & scheduler_.alive_lanes(thread.warp) & ~gathering.arrived) +
             " missing";
  return "";
}

void warp_collective(const Collective& collective, uint32_t mask, void* operand, Location where) {
  if (current_worker) [[likely]]
    current_worker->warps.take_part(collective, mask, operand, where);
  else
    running_worker(collective.name, where);  // throws
}

int lane() { return current_worker ? current_worker->scheduler.current().lane : 0; }

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

namespace {

/// One lane's part in a comparison.
struct Match {
  uint64_t bits;   // in
  uint32_t equal;  // out: lanes
};

void match_any(void* const* operands, uint32_t lanes, Location) {
  for (uint32_t left = lanes; left; left &= left - 1) {
    auto* mine = static_cast<Match*>(operands[__builtin_ctz(left)]);
    for (uint32_t others = lanes; others; others &= others - 1) {
      const int lane = __builtin_ctz(others);
      mine->equal |= uint32_t(static_cast<Match*>(operands[lane])->bits == mine->bits) << lane;
    }
  }
}

void match_all(void* const* operands, uint32_t lanes, Location where) {
  match_any(operands, lanes, where);
  for (uint32_t left = lanes; left; left &= left - 1) {
    auto* mine = static_cast<Match*>(operands[__builtin_ctz(left)]);
    if (mine->equal != lanes) mine->equal = 0;
  }
}

}  // namespace

const Collective kMatchAny{"__match_any_sync", &match_any};
const Collective kMatchAll{"__match_all_sync", &match_all};

uint32_t match(const Collective& which, uint32_t mask, uint64_t bits, Location where) {
  Match mine{bits, 0};
  warp_collective(which, mask, &mine, where);
  return mine.equal;
}

uint32_t active_lanes(Location where) { return running_worker("__activemask", where).warps.active(where); }

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
