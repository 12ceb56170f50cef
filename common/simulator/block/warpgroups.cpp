#include "common/simulator/block/warpgroups.h"

#include <string>

#include "common/simulator/block/warps.h"
#include "common/simulator/describe.h"
#include "common/simulator/launch.h"

namespace flashbook::sim {
namespace {

// The reports are separate functions that never return, like those in barriers.cpp.

[[noreturn]] void no_warpgroup(const char* what, Location where, std::size_t threads) {
  throw Error(describe_call(what, where) +
              " needs a warpgroup, which is four whole warps starting at a multiple of four: the block has " +
              std::to_string(threads) + " threads");
}

[[noreturn]] void thread_missing(const char* what, Location where, int warp, uint32_t lanes) {
  throw Error(describe_call(what, where) + " needs the whole warpgroup: warp " + std::to_string(warp) + ", " +
              describe_lanes(lanes) + " exited earlier");
}

[[noreturn]] void divergent_warp(const char* what, Location where, int lane, const Gathering& other) {
  throw Error("divergent warp: lane " + std::to_string(lane) + " is in " + describe_call(what, where) +
              ", but " + describe_waiting(other.arrived()) + " for it in " +
              describe_call(*other.collective, other.where, other.mask));
}

}  // namespace

/// Returns a list such as "warp 4, lanes 0-31; warp 5, lane 3".
std::string Warpgroups::describe_arrived(const Warpgroup& group, int first_warp) {
  std::string text;
  for (int i = 0; i < kWarpgroupWarps; ++i) {
    const uint32_t lanes = group.lanes[std::size_t(i)];
    if (!lanes) continue;
    text += (text.empty() ? "" : "; ") + ("warp " + std::to_string(first_warp + i)) + ", " +
            describe_lanes(lanes);
  }
  return text;
}

void Warpgroups::report_divergence(const char* what, Location where, const Thread& thread,
                                   const Warpgroup& group) {
  throw Error("divergent warpgroup: warp " + std::to_string(thread.warp) + ", lane " +
              std::to_string(thread.lane) + " is in " + describe_call(what, where) + ", but " +
              describe_arrived(group, thread.warp / kWarpgroupWarps * kWarpgroupWarps) + " wait for it in " +
              describe_call(group.collective->name, group.where));
}

void Warpgroups::begin_block(SharedBytes shared) {
  groups_.resize(scheduler_.threads().size() / kWarpgroupThreads);
  gathering_ = 0;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    Warpgroup& group = groups_[i];
    group.collective = nullptr;
    group.arrived = 0;
    group.lanes = {};
    group.products.begin_block(int(i) * kWarpgroupThreads, shared);
  }
}

void Warpgroups::gather(const WarpgroupCollective& collective, void* operand, Location where) {
  const Thread& self = scheduler_.current();
  const int number = self.warp / kWarpgroupWarps, first_warp = number * kWarpgroupWarps;
  if (number >= int(groups_.size())) no_warpgroup(collective.name, where, scheduler_.threads().size());
  Warpgroup& group = groups_[std::size_t(number)];
  if (!group.collective) {
    for (int i = first_warp; i < first_warp + kWarpgroupWarps; ++i)
      if (const uint32_t alive = scheduler_.alive_lanes(i); alive != kAllLanes)
        thread_missing(collective.name, where, i, ~alive);
    group.collective = &collective;
    group.where = where;
    ++gathering_;
  } else if (group.collective != &collective || !same_place(group.where, where)) {
    report_divergence(collective.name, where, self, group);
  }
  const uint32_t own = 1u << self.lane;
  for (const Gathering& other : warps_.gatherings(self.warp))
    if (other.mask & own) divergent_warp(collective.name, where, self.lane, other);

  const auto warp_of_group = std::size_t(self.warp - first_warp);
  group.lanes[warp_of_group] |= own;
  group.operands[warp_of_group * kWarpLanes + std::size_t(self.lane)] = operand;
  if (++group.arrived < kWarpgroupThreads) {
    scheduler_.suspend(*this, collective.name, where);
    return;
  }
  const Location first = group.where;
  --gathering_;
  group.collective = nullptr;
  group.arrived = 0;
  group.lanes = {};
  if (Observer* observer = scheduler_.observer())
    for (int i = first_warp; i < first_warp + kWarpgroupWarps; ++i) observer->converges(i, kAllLanes);
  if (EventLog* log = scheduler_.log())
    for (int i = first_warp; i < first_warp + kWarpgroupWarps; ++i) log->converges(i);
  collective.combine(group.products, scheduler_.random(), group.operands.data(), first);
  scheduler_.progress();
  for (int i = first_warp; i < first_warp + kWarpgroupWarps; ++i)
    scheduler_.make_ready(i, i == self.warp ? ~own : kAllLanes);
}

void Warpgroups::require_apart(const char* what, Location where) const {
  const Thread& self = scheduler_.current();
  const Warpgroup* group = find(self);
  if (group && group->lanes[std::size_t(self.warp % kWarpgroupWarps)])
    report_divergence(what, where, self, *group);
}

/// Returns the warpgroup of a thread; null if the warpgroup is incomplete.
const Warpgroups::Warpgroup* Warpgroups::find(const Thread& thread) const {
  const auto number = std::size_t(thread.warp / kWarpgroupWarps);
  return number < groups_.size() ? &groups_[number] : nullptr;
}

void Warpgroups::leave() const {
  const Thread& self = scheduler_.current();
  const Warpgroup* group = find(self);
  if (!group) return;
  if (group->collective)
    throw Error(describe_call(group->collective->name, group->where) + " needs the whole warpgroup: " +
                describe_arrived(*group, self.warp / kWarpgroupWarps * kWarpgroupWarps) +
                " wait for this thread, which exits");
  group->products.require_all_waited_for();
}

std::string Warpgroups::describe_wait(const Thread& thread) const {
  return ": " + std::to_string(find(thread)->arrived) + " of 128 threads of warpgroup " +
         std::to_string(thread.warp / kWarpgroupWarps) + " have arrived";
}

}  // namespace flashbook::sim
