/// \file
/// Where the four warps of a warpgroup meet. Internal to the simulator: kernels call wgmma.h.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "common/simulator/block/scheduler.h"
#include "common/simulator/block/wgmma_queue.h"

namespace flashbook::sim {

constexpr int kWarpgroupWarps = 4;
constexpr int kWarpgroupThreads = kWarpgroupWarps * 32;

class Warps;

/// A collective operation of a warpgroup's threads. Each passes a pointer to its operand; the last one to
/// arrive computes for all of them.
struct WarpgroupCollective {
  const char* name;  ///< the call's name in reports
  void (*combine)(WgmmaQueue& products, Random& random, void* const* operands, Location where);
};

/// The warpgroups of a block: which threads wait in a collective, and the products they have issued.
class Warpgroups final : public Awaited {
 public:
  Warpgroups(Scheduler& scheduler, const Warps& warps) : scheduler_(scheduler), warps_(warps) {}

  void begin_block(SharedBytes shared);
  /// Waits until all threads of the current warpgroup take part, from the same place.
  void gather(const WarpgroupCollective& collective, void* operand, Location where);
  /// Whether lanes of a warpgroup wait in a collective.
  bool is_gathering() const { return gathering_ > 0; }
  /// Throws Error if lanes of the current warp wait in a collective of the warpgroup.
  void require_together(const char* what, Location where) const {
    if (gathering_ > 0) require_apart(what, where);
  }
  /// Throws Error if the current thread must not exit because of its warpgroup.
  void leave() const;

  std::string describe_wait(const Thread& thread) const override;

 private:
  struct Warpgroup {
    const WarpgroupCollective* collective = nullptr;  ///< with threads waiting in it; null if there is none
    Location where;                                   ///< of the first thread
    int arrived = 0;
    std::array<uint32_t, kWarpgroupWarps> lanes{};  ///< of each warp: those that have arrived
    std::array<void*, kWarpgroupThreads> operands;
    WgmmaQueue products;
  };

  void require_apart(const char* what, Location where) const;
  const Warpgroup* find(const Thread& thread) const;
  static std::string describe_arrived(const Warpgroup& group, int first_warp);
  [[noreturn]] static void report_divergence(const char* what, Location where, const Thread& thread,
                                             const Warpgroup& group);

  Scheduler& scheduler_;
  const Warps& warps_;
  std::vector<Warpgroup> groups_;  ///< complete ones only
  int gathering_ = 0;              ///< how many of them have a collective in progress
};

}  // namespace flashbook::sim
