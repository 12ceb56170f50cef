/// \file
/// Where the four warps of a warpgroup meet. Internal to the simulator: what kernels call is in wgmma.h.
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

/// Something that all threads of a warpgroup do together. Each hands in a pointer to its operand; the last
/// one to come computes for all of them.
struct WarpgroupCollective {
  const char* name;  ///< the call's name in reports
  void (*combine)(WgmmaQueue& products, Random& random, void* const* operands, Location where);
};

/// The warpgroups of a block: who has come to a collective, and the products they have issued.
class Warpgroups final : public Awaited {
 public:
  Warpgroups(Scheduler& scheduler, const Warps& warps) : scheduler_(scheduler), warps_(warps) {}

  void begin_block(SharedBytes shared);
  /// Waits until all threads of the current one's warpgroup take part, from the same place.
  void gather(const WarpgroupCollective& collective, void* operand, Location where);
  /// Whether lanes wait in a collective of a warpgroup.
  bool is_gathering() const { return gathering_ > 0; }
  /// Throws Error if lanes of the current thread's warp wait in a collective of the warpgroup.
  void require_together(const char* what, Location where) const {
    if (gathering_ > 0) require_apart(what, where);
  }
  /// Throws Error if the current thread may not exit because of its warpgroup.
  void leave() const;

  std::string describe_wait(const Thread& thread) const override;

 private:
  struct Warpgroup {
    const WarpgroupCollective* collective = nullptr;  ///< that some threads have come to; null if none has
    Location where;                                   ///< of the first thread
    int arrived = 0;
    std::array<uint32_t, kWarpgroupWarps> lanes{};  ///< of each warp that have come
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
  std::vector<Warpgroup> groups_;  ///< the whole ones
  int gathering_ = 0;              ///< of these, how many have come to a collective in part
};

}  // namespace flashbook::sim
