/// \file
/// Where the lanes of a warp meet. Internal to the simulator: kernels call warp.h.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "common/simulator/block/scheduler.h"
#include "common/simulator/warp.h"

namespace flashbook::sim {

class Warpgroups;

/// A collective at which some lanes of a warp have arrived and others have not.
struct Gathering {
  const Collective* collective = nullptr;
  uint32_t mask = 0;     ///< the mask of the call
  uint32_t missing = 0;  ///< lanes of the mask that have not arrived and still can
  uint32_t gone = 0;     ///< lanes of the mask that have exited without arriving
  Location where;        ///< of the first lane

  uint32_t arrived() const { return mask & ~missing & ~gone; }
};

/// The meeting point of a warp's lanes.
struct Meeting {
  Gathering* only = nullptr;  ///< the warp's gathering if there is exactly one, otherwise an empty one
  std::array<void*, kWarpLanes> operands{};  ///< per lane, for its current collective
  std::vector<Gathering> gatherings;
  /// Lanes that have reached an __activemask.
  struct Together {
    Location where;
    uint32_t lanes;
  };
  std::vector<Together> together;
  std::array<uint32_t, kWarpLanes> active{};  ///< the last __activemask of each lane; 0: none yet
};

/// The collectives of a block's warps.
class Warps final : public Awaited {
 public:
  Warps(Scheduler& scheduler, const Warpgroups& warpgroups)
      : scheduler_(scheduler), warpgroups_(warpgroups) {}

  void begin_block();
  /// Waits until the collective has been computed. The lane's operand is in the meeting already.
  void gather(const Collective& collective, uint32_t mask, Location where);
  /// The same, after storing the operand there.
  void take_part(const Collective& collective, uint32_t mask, void* operand, Location where);
  /// The lanes that execute an __activemask with the current one.
  uint32_t active(Location where);
  /// The current thread has exited.
  void leave();
  /// The collectives in which lanes of a warp wait: at most one, unless the warp has diverged.
  const std::vector<Gathering>& gatherings(int warp) const { return meetings_[std::size_t(warp)].gatherings; }

  std::string describe_wait(const Thread& thread) const override;

 private:
  void complete(Meeting& meeting, std::size_t gathering);
  void note_only(Meeting& meeting);  // sets Meeting::only

  Scheduler& scheduler_;
  const Warpgroups& warpgroups_;
  std::vector<Meeting> meetings_;  // per warp
  Gathering nobody_;               // has no lanes, see Meeting::only
};

}  // namespace flashbook::sim
