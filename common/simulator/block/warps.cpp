#include "common/simulator/block/warps.h"

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>

#include "common/simulator/block/worker.h"
#include "common/simulator/describe.h"
#include "common/simulator/launch.h"

namespace flashbook::sim {
namespace {

// The reports are separate functions that never return, like those in barriers.cpp.

[[noreturn, gnu::noinline]] void not_in_mask(const Collective& collective, Location where, uint32_t mask,
                                             int lane) {
  throw Error(describe_call(collective, where, mask) + " is called by lane " + std::to_string(lane) +
              ", which is not in the mask");
}

[[noreturn, gnu::noinline]] void divergent(const Collective& collective, Location where, uint32_t mask,
                                           int lane, const Gathering& other) {
  throw Error("divergent warp: lane " + std::to_string(lane) + " is in " +
              describe_call(collective, where, mask) + ", but " + describe_waiting(other.arrived()) +
              " for it in " + describe_call(*other.collective, other.where, other.mask));
}

[[noreturn, gnu::noinline]] void lanes_missing(const Gathering& gathering) {
  throw Error(describe_call(gathering.collective->name, gathering.where) + " needs the whole warp: " +
              describe_lanes(~gathering.arrived()) + " exited earlier or never existed");
}

}  // namespace

void Warps::begin_block() {
  meetings_.resize(std::size_t(scheduler_.warps()));
  for (int warp = 0; warp < scheduler_.warps(); ++warp) {
    Meeting& meeting = meetings_[std::size_t(warp)];
    meeting.gatherings.clear();
    meeting.together.clear();
    note_only(meeting);
    scheduler_.set_meeting(warp, meeting);
  }
}

void Warps::note_only(Meeting& meeting) {
  meeting.only = meeting.gatherings.size() == 1 ? &meeting.gatherings.front() : &nobody_;
}

[[gnu::noinline]] void Warps::gather(const Collective& collective, uint32_t mask, Location where) {
  const Thread& self = scheduler_.current();
  const uint32_t own = 1u << self.lane;
  if (!(mask & own)) not_in_mask(collective, where, mask, self.lane);
  warpgroups_.require_together(collective.name, where);
  Meeting& meeting = scheduler_.meeting();
  std::size_t mine = meeting.gatherings.size();
  for (std::size_t i = 0; i < meeting.gatherings.size(); ++i) {
    const Gathering& other = meeting.gatherings[i];
    if (other.collective == &collective && other.mask == mask &&
        (!collective.aligned || same_place(other.where, where))) {
      mine = i;
    } else if ((other.mask & own) && (other.arrived() & mask)) {
      // These lanes are waiting for the current one, so it must not wait for them.
      divergent(collective, where, mask, self.lane, other);
    }
  }
  if (mine == meeting.gatherings.size()) {
    const uint32_t alive = scheduler_.alive_lanes(self.warp);
    meeting.gatherings.push_back({&collective, mask, mask & alive, mask & ~alive, where});
    note_only(meeting);
  }
  if ((meeting.gatherings[mine].missing &= ~own) == 0)
    complete(meeting, mine);
  else
    scheduler_.suspend(*this, collective.name, where);
}

void Warps::take_part(const Collective& collective, uint32_t mask, void* operand, Location where) {
  scheduler_.meeting().operands[std::size_t(scheduler_.current().lane)] = operand;
  gather(collective, mask, where);
}

/// Computes a collective of the current thread's warp and wakes the waiting lanes.
[[gnu::noinline]] void Warps::complete(Meeting& meeting, std::size_t gathering) {
  const Thread& self = scheduler_.current();
  const Gathering full = meeting.gatherings[gathering];
  const uint32_t lanes = full.arrived();
  if (full.collective->aligned && lanes != kAllLanes) lanes_missing(full);
  meeting.gatherings[gathering] = meeting.gatherings.back();
  meeting.gatherings.pop_back();
  note_only(meeting);
  if (Observer* observer = scheduler_.observer()) {
    observer->converges(self.warp, lanes);
    if (full.collective == &kSyncWarp) observer->joins(self.warp, lanes);
  }
  if (EventLog* log = scheduler_.log()) {
    // Lanes meet twice for setmaxnreg, which the register pool logs itself.
    if (const std::string_view name = full.collective->name; !name.starts_with("setmaxnreg"))
      log->add_warps(self.warp, 1, {EventKind::does, name, full.where}, true, lanes);
    log->converges(self.warp);
  }
  full.collective->combine(meeting.operands.data(), lanes, full.where);
  scheduler_.make_ready(self.warp, lanes & ~(1u << self.lane));
}

void Warps::leave() {
  Meeting& meeting = scheduler_.meeting();
  const uint32_t own = 1u << scheduler_.current().lane;
  for (std::size_t i = meeting.gatherings.size(); i-- > 0;) {
    Gathering& gathering = meeting.gatherings[i];
    if (!(gathering.missing & own)) continue;
    gathering.missing &= ~own;
    gathering.gone |= own;
    if (gathering.missing == 0) complete(meeting, i);
  }
}

/// Lanes that reach the same place while other threads of the block can still run form one group.
uint32_t Warps::active(Location where) {
  Meeting& warp = scheduler_.meeting();
  const auto lane = std::size_t(scheduler_.current().lane);
  const auto here = [&] {
    return std::find_if(warp.together.begin(), warp.together.end(),
                        [&](const Meeting::Together& other) { return same_place(other.where, where); });
  };
  if (here() == warp.together.end()) warp.together.push_back({where, 0});
  here()->lanes |= 1u << lane;
  warp.active[lane] = 0;
  scheduler_.progress();
  scheduler_.poll(*this, "__activemask", where);
  if (warp.active[lane] == 0) {  // the first lane to continue
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
    if (gathering.arrived() >> thread.lane & 1)
      return " with mask " + describe_mask(gathering.mask) + ": " + describe_lanes(gathering.missing) +
             " missing";
  return "";
}

/// Most lanes follow another lane to the same place and are not the last. These need no stack frame here
/// while they wait, and so save no registers.
void warp_collective(const Collective& collective, uint32_t mask, void* operand, Location where) {
  Worker* const worker = current_worker;
  if (!worker) [[unlikely]]
    return void(running_worker(collective.name, where));  // throws
  Meeting& meeting = worker->scheduler.meeting();
  const int lane = worker->scheduler.current().lane;
  meeting.operands[std::size_t(lane)] = operand;
  Gathering& gathering = *meeting.only;
  if (gathering.collective != &collective || gathering.mask != mask || !(gathering.missing >> lane & 1) ||
      (collective.aligned && !is_same_call(gathering.where, where)) || worker->warpgroups.is_gathering())
    return worker->warps.gather(collective, mask, where);
  const uint32_t others = gathering.missing & ~(1u << lane);
  if (others == 0) return worker->warps.gather(collective, mask, where);
  gathering.missing = others;
  worker->scheduler.suspend(worker->warps, collective.name, where);
}

int lane() { return current_worker ? current_worker->scheduler.current().lane : 0; }

// The implementation of shuffles and votes.

void shuffle_reads_absent_lane(const Collective& collective, Location where, int reader, int source) {
  throw Error(describe_call(collective.name, where) + ": lane " + std::to_string(reader) + " reads lane " +
              std::to_string(source) + ", which is not in the mask or has exited");
}

void wrong_shuffle_width(const Collective& collective, int width, Location where) {
  throw Error(describe_call(collective.name, where) + " has width " + std::to_string(width) +
              ": use 1, 2, 4, 8, 16 or 32");
}

namespace {

/// A lane's operand in a vote.
struct Vote {
  bool predicate;   // input
  uint32_t ballot;  // output
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

/// A lane's operand in a match.
struct Match {
  uint64_t bits;   // input
  uint32_t equal;  // output: the matching lanes
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
const Collective kElect{"elect_one", &ballot};
const Collective kSyncWarp{"__syncwarp", [](void* const*, uint32_t, Location) {}};

uint32_t vote(const Collective& which, uint32_t mask, bool predicate, Location where) {
  Vote mine{predicate, 0};
  warp_collective(which, mask, &mine, where);
  return mine.ballot;
}

// PTX does not specify which lane is elected; here it depends on the seed.
bool elect_one(uint32_t mask, Location where) {
  uint32_t lanes = vote(kElect, mask, true, where);
  for (uint64_t skipped = options().seed % unsigned(std::popcount(lanes)); skipped > 0; --skipped)
    lanes &= lanes - 1;
  return lane() == std::countr_zero(lanes);
}

}  // namespace flashbook::sim
