/// \file
/// The meeting points of a warpgroup's four warps. Internal to the simulator: kernels include wgmma.h.
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

/// A collective operation of a warpgroup's threads. Each thread passes a pointer to its operand; the last one
/// to arrive computes for all of them.
struct WarpgroupCollective {
  const char* name;  ///< the call's name in reports
  void (*combine)(WgmmaQueue& products, Random& random, void* const* operands, Location where);
};

/// The warpgroups of a block: the threads that wait in a collective, and the products that they have issued.
class Warpgroups final : public Awaited {
 public:
  Warpgroups(Scheduler& scheduler, const Warps& warps) : scheduler_(scheduler), warps_(warps) {}

  void begin_block(SharedBytes shared);
  /// Waits until all threads of the current warpgroup take part, from the same place in the source.
  void gather(const WarpgroupCollective& collective, void* operand, Location where);
  bool is_gathering() const { return gathering_ > 0; }
  /// Throws Error if lanes of the current warp wait in a collective of their warpgroup.
  void require_together(const char* what, Location where) const {
    if (gathering_ > 0) require_apart(what, where);
  }
  /// Throws Error if the current thread's warpgroup does not allow the thread to exit.
  void leave() const;

  std::string describe_wait(const Thread& thread) const override;

 private:
  struct Warpgroup {
    const WarpgroupCollective* collective = nullptr;  ///< what threads are waiting in; null if none
    Location where;                                   ///< location of the first thread's call
    int arrived = 0;
    std::array<uint32_t, kWarpgroupWarps> lanes{};  ///< mask of each warp's lanes that have arrived
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
  std::vector<Warpgroup> groups_;  ///< complete warpgroups only
  int gathering_ = 0;              ///< number of warpgroups with a collective in progress
};

}  // namespace flashbook::sim
