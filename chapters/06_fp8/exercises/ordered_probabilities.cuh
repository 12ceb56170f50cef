/// \file
/// Exercise ch06-order: P for a V whose keys are in their natural order.
#pragma once
#include "chapters/06_fp8/problem.cuh"
#include "common/ptx/convert.h"
#include "common/ptx/math.h"

namespace flashbook::fp8 {

// Another quantiser writes V transposed into device memory. TMA loads it, no warp transposes, and the keys
// along its rows are in their natural order: 0 1 2 3 and so on. So P must have them in that order, too, or
// the product sums wrong pairs. For every 16 keys of a row
//
//     thread of the quad        0           1           2           3
//     keys that it has          0 1 8 9     2 3 10 11   4 5 12 13   6 7 14 15
//     keys that wgmma expects   0 1 2 3     4 5 6 7     8 9 10 11   12 13 14 15
//
// and something must move. A shuffle moves 32 bits, whatever they are, so threads round first, and exchange
// registers of four elements. Two shuffles for each register of P are enough.

/// P = scores, which are probabilities by now, rounded to e4m3, with keys in natural order. All lanes of the
/// warp.
template <int kFloats>
__device__ __forceinline__ void round_in_order(uint32_t (&p)[kFloats / 16][4],  // as wgmma takes them
                                               const float (&scores)[kFloats]) {
#pragma unroll
  for (int i = 0; i < kFloats / 16; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const int at = 16 * i + 8 * half + 2 * row;
        const uint32_t own = pack_e4m3(scores[at], scores[at + 1], scores[at + 4], scores[at + 5]);
        // BEGIN EXERCISE ch06-order: what a thread has
        // TODO: the chapter's order. Thread t must give keys 4t to 4t + 3 of these 16.
        p[i][2 * half + row] = own;
        // END EXERCISE ch06-order
      }
}

}  // namespace flashbook::fp8
