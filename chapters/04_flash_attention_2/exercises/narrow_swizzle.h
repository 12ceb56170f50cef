/// \file
/// Exercise ch04-swizzle: places for the pieces of a tile with short rows.
#pragma once
#include "common/device/kernel.h"

namespace flashbook::fa2 {

// A model with head_dim 32 has rows of 64 bytes in 16 bits: four pieces of 16 bytes. Two rows fill the 32
// banks once.

/// Returns the offset of piece `piece` (0 to 3) of row `row` in a tile of 64-byte rows, in bytes. The same
/// piece of eight neighbouring rows, the first of them a multiple of 8, must touch every bank once, and so
/// must two neighbouring rows, the first of them even.
__host__ __device__ constexpr int narrow_swizzled(int row, int piece) {
  // BEGIN EXERCISE ch04-swizzle: rows of half a line
  return row * 64 + piece * 16;  // TODO: so far, the pieces are not permuted
  // END EXERCISE ch04-swizzle
}

}  // namespace flashbook::fa2
