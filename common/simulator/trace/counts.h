/// \file
/// What a request of a warp costs. Internal to the simulator.
///
/// A textbook's model, not a measurement: global memory moves in sectors of 32 bytes; shared memory has 32
/// banks, each 4 bytes wide, and serves in one wavefront whatever touches no bank twice in different words.
/// Lanes that read the same word share it. (CUDA C++ Best Practices Guide, "Device Memory Accesses", "Shared
/// Memory"; Nsight Compute calls the units sectors and wavefronts.)
#pragma once
#include <cstdint>

namespace flashbook::sim {

constexpr uint32_t kSectorBytes = 32, kBanks = 32, kBankBytes = 4;

/// What the active lanes of a warp ask for in one instruction.
struct Request {
  uint32_t lanes;           ///< that are active
  uint32_t bytes;           ///< a lane: at most 16
  const uint64_t* of_lane;  ///< [32] addresses
};

/// Sectors, or wavefronts, that a request takes, and how few it could take if its lanes asked for as many
/// different bytes that lie well.
struct Cost {
  uint32_t units, ideal;
};

/// The numbers (address / 32) of the sectors that a request of global memory touches, each once, ascending.
struct Sectors {
  uint32_t count = 0;
  uint64_t number[64];
};

Sectors sectors_of(const Request& request);
Cost global_cost(const Request& request, const Sectors& sectors);

/// Accesses of 8 bytes are served half a warp at a time, those of 16 bytes (ldmatrix's rows, too) a quarter.
Cost shared_cost(const Request& request);

}  // namespace flashbook::sim
