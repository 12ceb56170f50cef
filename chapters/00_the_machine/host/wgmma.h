/// \file
/// The kernels of chapter 0 that need a Hopper, compiled apart.
#pragma once
#include <cstddef>
#include <cstdint>

namespace flashbook::machine {

/// Two warpgroups.
constexpr int kWgmmaThreads = 256;

/// FLOPs of a warpgroup in a round.
extern const double kWgmmaFlopsOfRound;

/// What each element of the products is after `rounds` rounds.
float wgmma_element(int rounds);

/// Launches warpgroup_products on so many blocks. `sums` has a float for each thread, of its 128 elements;
/// `clocks` a number for each block. Precondition: a Hopper GPU, or the simulator.
void launch_warpgroup_products(int blocks, int rounds, float* sums, int64_t* clocks);

/// Who adds in the L2: each thread a float, or four; or one thread, by TMA.
enum class Adds { floats, fours, tiles };

/// Floats of a tile that a block of add_ones adds in a round: 32 KB.
constexpr int kTileFloats = 8192;

/// Launches add_ones on so many blocks. Precondition likewise.
void launch_additions(Adds how, int blocks, float* sums, int tiles, int rounds);

}  // namespace flashbook::machine
