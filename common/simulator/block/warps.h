/// \file
/// Where the lanes of a warp meet. Internal to the simulator: what kernels call is in warp.h.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "common/simulator/block/scheduler.h"
#include "common/simulator/warp.h"

namespace flashbook::sim {

class Warpgroups;

/// A collective for which some lanes of a warp have come and others have not.
struct Gathering {
  const Collective* collective = nullptr;
  uint32_t mask = 0;     ///< the lanes it was called for
  uint32_t missing = 0;  ///< those of the mask that have not come, and can still come
  uint32_t gone = 0;     ///< those of the mask that have exited and did not come
  Location where;        ///< of the first lane

  uint32_t arrived() const { return mask & ~missing & ~gone; }
};

/// Where the lanes of a warp meet.
struct Meeting {
  Gathering* only = nullptr;  ///< the warp's gathering if it has just one, otherwise one that nobody is in
  std::array<void*, kWarpLanes> operands{};  ///< of each lane, for the collective that it has come to
  std::vector<Gathering> gatherings;
  /// Lanes that have come to an __activemask.
  struct Together {
    Location where;
    uint32_t lanes;
  };
  std::vector<Together> together;
  std::array<uint32_t, kWarpLanes> active{};  ///< what __activemask has told each lane; 0: nothing yet
};

/// The collectives of a block's warps.
class Warps final : public Awaited {
 public:
  Warps(Scheduler& scheduler, const Warpgroups& warpgroups)
      : scheduler_(scheduler), warpgroups_(warpgroups) {}

  void begin_block();
  /// Waits until the collective has been computed. The lane's operand is in the meeting already.
  void gather(const Collective& collective, uint32_t mask, Location where);
  /// The same, after it has put the operand there.
  void take_part(const Collective& collective, uint32_t mask, void* operand, Location where);
  /// The lanes that execute an __activemask with the current one.
  uint32_t active(Location where);
  /// The current thread has exited.
  void leave();
  /// What lanes of a warp wait in: at most one, unless parts of the warp go different ways.
  const std::vector<Gathering>& gatherings(int warp) const { return meetings_[std::size_t(warp)].gatherings; }

  std::string describe_wait(const Thread& thread) const override;

 private:
  void complete(Meeting& meeting, std::size_t gathering);
  void note_only(Meeting& meeting);  // sets Meeting::only

  Scheduler& scheduler_;
  const Warpgroups& warpgroups_;
  std::vector<Meeting> meetings_;  // of each warp
  Gathering nobody_;               // that nobody is in, see Meeting::only
};

}  // namespace flashbook::sim
