/// \file
/// Exercise ch06-means: means that change from tile to tile.
#pragma once
#include "chapters/06_fp8/problem.cuh"
#include "common/hopper/softmax.h"

namespace flashbook::fp8 {

// Values drift: the first keys have a different mean from all keys together, and under a causal mask the
// first queries see only those. So this quantiser subtracts from every tile of keys the means of that tile's
// columns. For a row with unnormalised probabilities p_j and the values v_j of a tile,
//
//     sum_j p_j v_j = sum_j p_j (v_j - m) + what is missing
//
// The tensor cores compute the first sum. What is missing differs from tile to tile, so it must be added
// after the product of each tile and before the next rescaling. It is not what the chapter adds at the end,
// where the weights add up to 1.
//
// The output is a wgmma accumulator with V's columns in natural order: of every 8 columns lane t of a quad
// has 2 t and 2 t + 1, floats 4 j and 4 j + 1 of its first row, 4 j + 2 and 4 j + 3 of its second.

/// Adds to an output, not yet divided, what a tile's means contribute. `sums`: of the thread's own
/// probabilities of this tile, by row; they are 0 where the row sees no key of the tile. All lanes of the
/// warp.
template <int kFloats>
__device__ __forceinline__ void add_tile_means(float (&output)[kFloats], const float (&sums)[2],
                                               const float* mean) {  // [2 * kFloats], aligned to 16 bytes
  // BEGIN EXERCISE ch06-means: adding the mean back
  // TODO: which columns of which rows does the thread hold, and which weight does the mean have there?
  static_cast<void>(sums);
  for (int i = 0; i < kFloats; ++i) output[i] += mean[i];
  // END EXERCISE ch06-means
}

}  // namespace flashbook::fp8
