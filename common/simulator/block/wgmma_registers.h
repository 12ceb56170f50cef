/// \file
/// How wgmma distributes matrices across the registers of 128 threads. Internal to the simulator.
#pragma once
#include <array>
#include <cstdint>

#include "common/numeric/dtype.h"

namespace flashbook::sim {

/// The number of registers per thread for a matrix a.
constexpr int kFragmentRegisters = 4;

/// Reads an accumulator's values, [64][n], from the n / 2 floats of each thread.
void gather_accumulator(const std::array<float*, 128>& registers, int n, float* values);

/// Writes the values back.
void scatter_accumulator(const std::array<float*, 128>& registers, int n, const float* values);

/// Reads the values of a matrix a, [64][16], or [64][32] for e4m3, from the registers of each thread.
void read_fragment(DType type, const std::array<uint32_t, 128 * kFragmentRegisters>& registers,
                   float* values);

}  // namespace flashbook::sim
