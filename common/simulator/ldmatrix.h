/// \file
/// ldmatrix and stmatrix: 8x8 matrices of 16-bit elements between shared memory and the registers of a warp.
#pragma once
#include <cstdint>

#include "common/simulator/location.h"

namespace flashbook::sim {

/// Loads four matrices, each into one register per lane. `row` is the lane's row: lane 8 * m + r holds the
/// address of row r of matrix m.
void ldmatrix(uint32_t (&registers)[4], bool transposed, const void* row, Location where);

/// Stores four matrices.
void stmatrix(void* row, const uint32_t (&registers)[4], bool transposed, Location where);

}  // namespace flashbook::sim
