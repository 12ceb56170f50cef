/// \file
/// The kernels of chapter 0's program that need a Hopper, compiled separately: those of
/// warpgroup_products.cuh and additions.cuh.
#pragma once
#include <cstdint>

#include "chapters/00_the_machine/additions.cuh"

namespace flashbook::machine {

/// Two warpgroups.
constexpr int kWgmmaThreads = 256;

/// FLOPs per warpgroup and round.
extern const double kWgmmaFlopsPerRound;

/// Returns the value of each element of the products after `rounds` rounds.
float wgmma_element(int rounds);

/// Launches warpgroup_products on `blocks` blocks. `sums` gets the sum of each thread's 128 elements;
/// `clocks` a number for each block. Precondition: a Hopper GPU, or the simulator.
void launch_warpgroup_products(int blocks, int rounds, float* sums, int64_t* clocks);

/// Launches add_ones on `blocks` blocks. Same precondition.
void launch_additions(Adds how, int blocks, float* sums, int tiles, int rounds);

}  // namespace flashbook::machine
