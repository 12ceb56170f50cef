/// \file
/// ldmatrix and stmatrix: 8x8 matrices of 16-bit elements between shared memory and the registers of a warp.
#pragma once
#include <cstdint>

#include "common/simulator/location.h"

namespace flashbook::sim {

/// Loads `count` (1, 2 or 4) matrices, one register each. `row` is the lane's row: lane 8 * m + r holds the
/// address of row r of matrix m; lanes from 8 * count on are not asked.
void ldmatrix(uint32_t* registers, int count, bool transposed, const void* row, Location where);

/// Stores them.
void stmatrix(void* row, const uint32_t* registers, int count, bool transposed, Location where);

}  // namespace flashbook::sim
