/// \file
/// The cost of a warp's request. Internal to the simulator.
///
/// This is the textbook model, not a measurement. Global memory moves in sectors of 32 bytes. Shared memory
/// has 32 banks, each 4 bytes wide; one wavefront serves all accesses that touch at most one word per bank.
/// Lanes that read the same word share it. (CUDA C++ Best Practices Guide, "Device Memory Accesses", "Shared
/// Memory"; Nsight Compute calls the units sectors and wavefronts.)
#pragma once
#include <cstdint>

namespace flashbook::sim {

constexpr uint32_t kSectorBytes = 32, kBanks = 32, kBankBytes = 4;

/// The accesses of a warp's active lanes in one instruction.
struct Request {
  uint32_t lanes;           ///< mask of the active lanes
  uint32_t bytes;           ///< bytes per lane, at most 16
  const uint64_t* of_lane;  ///< [32] addresses
};

/// The sectors or wavefronts of a request, and the minimum number that a perfect layout of the same number of
/// different bytes would need.
struct Cost {
  uint32_t units, ideal;
};

/// The numbers (address / 32) of the sectors that a request accesses in global memory, in ascending order and
/// without duplicates.
struct Sectors {
  uint32_t count = 0;
  uint64_t number[64];
};

Sectors sectors_of(const Request& request);
Cost global_cost(const Request& request, const Sectors& sectors);

/// Returns the wavefronts. Accesses of 8 bytes are served half a warp at a time; those of 16 bytes, including
/// ldmatrix's rows, a quarter of a warp at a time.
Cost shared_cost(const Request& request);

}  // namespace flashbook::sim
