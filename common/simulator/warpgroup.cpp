#include "common/simulator/warpgroup.h"

#include <string>
#include <string_view>

#include "common/simulator/scheduler.h"

namespace flashbook::sim {
namespace {

// The reports are functions of their own that never return, as in collectives.cpp.

/// "warp 4, lanes 0-31; warp 5, lane 3".
std::string describe_arrived(const Warpgroup& group, int first_warp) {
  std::string text;
  for (int i = 0; i < kWarpgroupWarps; ++i) {
    const uint32_t lanes = group.lanes[std::size_t(i)];
    if (!lanes) continue;
    text += (text.empty() ? "" : "; ") + ("warp " + std::to_string(first_warp + i)) + ", " +
            describe_lanes(lanes);
  }
  return text;
}

[[noreturn]] void no_warpgroup(const char* what, Location where, int threads) {
  throw Error(describe_call(what, where) +
              " needs a warpgroup, four whole warps from a multiple of four on: the block has " +
              std::to_string(threads) + " threads");
}

[[noreturn]] void thread_missing(const char* what, Location where, int warp, uint32_t lanes) {
  throw Error(describe_call(what, where) + " needs the whole warpgroup: warp " + std::to_string(warp) + ", " +
              describe_lanes(lanes) + " exited before");
}

[[noreturn]] void divergent_warpgroup(const char* what, Location where, const Thread& thread,
                                      const Warpgroup& group) {
  throw Error("divergent warpgroup: warp " + std::to_string(thread.warp) + ", lane " +
              std::to_string(thread.lane) + " is in " + describe_call(what, where) + ", but " +
              describe_arrived(group, thread.warp / kWarpgroupWarps * kWarpgroupWarps) + " wait for it in " +
              describe_call(group.collective->name, group.where));
}

[[noreturn]] void divergent_warp(const char* what, Location where, int lane, const Gathering& other) {
  throw Error("divergent warp: lane " + std::to_string(lane) + " is in " + describe_call(what, where) +
              ", but " + describe_lanes(other.arrived) + " wait for it in " +
              describe_call(*other.collective, other.where, other.mask));
}

bool same_place(Location a, Location b) {
  return a.line == b.line && (a.file == b.file || std::string_view(a.file) == b.file);
}

}  // namespace

void warpgroup_collective(const WarpgroupCollective& collective, void* operand, Location where) {
  running_worker(collective.name, where).gather(collective, operand, where);
}

void Worker::gather(const WarpgroupCollective& collective, void* operand, Location where) {
  const int number = current_->warp / kWarpgroupWarps, first_warp = number * kWarpgroupWarps;
  if (number >= int(warpgroups_.size())) no_warpgroup(collective.name, where, int(threads_.size()));
  Warpgroup& group = warpgroups_[std::size_t(number)];
  if (!group.collective) {
    for (int i = first_warp; i < first_warp + kWarpgroupWarps; ++i)
      if (const uint32_t alive = warps_[std::size_t(i)].alive; alive != kAllLanes)
        thread_missing(collective.name, where, i, ~alive);
    group.collective = &collective;
    group.where = where;
  } else if (group.collective != &collective || !same_place(group.where, where)) {
    divergent_warpgroup(collective.name, where, *current_, group);
  }
  const uint32_t self = 1u << current_->lane;
  for (const Gathering& other : warps_[std::size_t(current_->warp)].gatherings)
    if (other.mask & self) divergent_warp(collective.name, where, current_->lane, other);

  const auto warp_of_group = std::size_t(current_->warp - first_warp);
  group.lanes[warp_of_group] |= self;
  group.operands[warp_of_group * kWarpLanes + std::size_t(current_->lane)] = operand;
  if (++group.arrived < kWarpgroupThreads) {
    suspend(Wait::warpgroup, collective.name, where);
    return;
  }
  const Location first = group.where;
  group.collective = nullptr;
  group.arrived = 0;
  group.lanes = {};
  if (observer_)
    for (int i = first_warp; i < first_warp + kWarpgroupWarps; ++i) observer_->converges(i, kAllLanes);
  collective.combine(*this, number, group.operands.data(), first);
  progress();
  for (int i = first_warp; i < first_warp + kWarpgroupWarps; ++i)
    make_ready(i, i == current_->warp ? ~self : kAllLanes);
}

void Worker::require_together(const char* what, Location where) const {
  const Warpgroup* group = warpgroup_of(*current_);
  if (group && group->lanes[std::size_t(current_->warp % kWarpgroupWarps)])
    divergent_warpgroup(what, where, *current_, *group);
}

const Warpgroup* Worker::warpgroup_of(const Thread& thread) const {
  const auto number = std::size_t(thread.warp / kWarpgroupWarps);
  return number < warpgroups_.size() ? &warpgroups_[number] : nullptr;
}

void Worker::leave_warpgroup() {
  const Warpgroup* group = warpgroup_of(*current_);
  if (!group) return;
  if (group->collective)
    throw Error(describe_call(group->collective->name, group->where) + " needs the whole warpgroup: " +
                describe_arrived(*group, current_->warp / 4 * 4) + " wait for this thread, which exits");
  group->products.require_all_waited_for();
}

}  // namespace flashbook::sim
