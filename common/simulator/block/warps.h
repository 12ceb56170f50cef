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
  const Collective* collective;
  uint32_t mask;  ///< the lanes it was called for
  uint32_t arrived;
  Location where;  ///< of the first lane
};

/// The collectives of a block's warps.
class Warps final : public Awaited {
 public:
  Warps(Scheduler& scheduler, const Warpgroups& warpgroups)
      : scheduler_(scheduler), warpgroups_(warpgroups) {}

  void begin_block();
  /// Waits until the collective has been computed.
  void take_part(const Collective& collective, uint32_t mask, void* operand, Location where);
  /// The lanes that execute an __activemask with the current one.
  uint32_t active(Location where);
  /// The current thread has exited.
  void leave();
  /// What lanes of a warp wait in: at most one, unless parts of the warp go different ways.
  const std::vector<Gathering>& gatherings(int warp) const { return warps_[std::size_t(warp)].gatherings; }

  std::string describe_wait(const Thread& thread) const override;

 private:
  /// Lanes that have come to an __activemask.
  struct Together {
    Location where;
    uint32_t lanes;
  };
  struct Warp {
    std::vector<Gathering> gatherings;
    std::array<void*, kWarpLanes> operands{};
    std::vector<Together> together;
    std::array<uint32_t, kWarpLanes> active{};  ///< what __activemask has told each lane; 0: nothing yet
  };

  void gather(const Collective& collective, uint32_t mask, void* operand, Location where);
  bool is_full(const Gathering& gathering, int warp) const;
  void complete(Warp& warp, std::size_t gathering);

  Scheduler& scheduler_;
  const Warpgroups& warpgroups_;
  std::vector<Warp> warps_;
};

}  // namespace flashbook::sim
