/// \file
/// The meeting points of a warp's lanes. Internal to the simulator: kernels include warp.h.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "common/simulator/block/scheduler.h"
#include "common/simulator/warp.h"

namespace flashbook::sim {

class Warpgroups;

/// A collective operation that some lanes of a warp have reached and others have not.
struct Gathering {
  const Collective* collective = nullptr;
  uint32_t mask = 0;     ///< mask of the call
  uint32_t missing = 0;  ///< lanes of the mask that may still arrive
  uint32_t gone = 0;     ///< lanes of the mask that have exited without arriving
  Location where;        ///< location of the first lane's call

  uint32_t arrived() const { return mask & ~missing & ~gone; }
};

/// The meeting point of a warp's lanes.
struct Meeting {
  Gathering* only = nullptr;  ///< the warp's gathering if there is exactly one, otherwise an empty one
  std::array<void*, kWarpLanes> operands{};  ///< each lane's operand in its current collective
  std::vector<Gathering> gatherings;
  /// The lanes that have reached an __activemask.
  struct Together {
    Location where;
    uint32_t lanes;
  };
  std::vector<Together> together;
  std::array<uint32_t, kWarpLanes> active{};  ///< each lane's last __activemask; 0 if none yet
};

/// The collectives of a block's warps.
class Warps final : public Awaited {
 public:
  Warps(Scheduler& scheduler, const Warpgroups& warpgroups)
      : scheduler_(scheduler), warpgroups_(warpgroups) {}

  void begin_block();
  /// Waits until the collective has been computed. The lane's operand is already stored in the meeting.
  void gather(const Collective& collective, uint32_t mask, Location where);
  /// Stores the operand in the meeting, then waits until the collective has been computed.
  void take_part(const Collective& collective, uint32_t mask, void* operand, Location where);
  /// Returns the lanes that execute an __activemask together with the current one.
  uint32_t active(Location where);
  /// Notes that the current thread has exited.
  void leave();
  /// Returns the collectives in which lanes of a warp are waiting: at most one, unless the warp has diverged.
  const std::vector<Gathering>& gatherings(int warp) const { return meetings_[std::size_t(warp)].gatherings; }

  std::string describe_wait(const Thread& thread) const override;

 private:
  void complete(Meeting& meeting, std::size_t gathering);
  void note_only(Meeting& meeting);  // updates Meeting::only

  Scheduler& scheduler_;
  const Warpgroups& warpgroups_;
  std::vector<Meeting> meetings_;  // one meeting per warp
  Gathering nobody_;               // a gathering without lanes, see Meeting::only
};

}  // namespace flashbook::sim
