/// \file
/// What the four warps of a warpgroup do together. Internal to the simulator.
#pragma once
#include <array>
#include <cstdint>

#include "common/simulator/location.h"
#include "common/simulator/wgmma_queue.h"

namespace flashbook::sim {

constexpr int kWarpgroupWarps = 4;
constexpr int kWarpgroupThreads = kWarpgroupWarps * 32;

class Worker;

/// Something that all threads of a warpgroup do together. Each hands in a pointer to its operand; the last
/// one to come computes for all of them.
struct WarpgroupCollective {
  const char* name;  ///< the call's name in reports
  void (*combine)(Worker& worker, int warpgroup, void* const* operands, Location where);
};

/// A warpgroup: who has come to its collective, and the products it has issued.
struct Warpgroup {
  const WarpgroupCollective* collective = nullptr;  ///< that some threads have come to; null if none has
  Location where;                                   ///< of the first thread
  int arrived = 0;
  std::array<uint32_t, kWarpgroupWarps> lanes{};  ///< of each warp that have come
  std::array<void*, kWarpgroupThreads> operands;
  WgmmaQueue products;
};

/// Waits until all threads of the calling one's warpgroup take part in `collective`, from the same place.
void warpgroup_collective(const WarpgroupCollective& collective, void* operand, Location where);

}  // namespace flashbook::sim
