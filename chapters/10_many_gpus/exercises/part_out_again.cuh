/// \file
/// Exercise ch10-merge: a part is taken out again.
#pragma once
#include "common/device/kernel.h"

namespace flashbook::many_gpus {

// A rank has merged O and the log-sum-exp over the keys of all ranks. Then some keys should no longer count,
// because a window has moved on or a document was withdrawn. Attention over those keys alone is available, as
// a part with its O (divided by its own sum) and its log-sum-exp (natural). Recomputing the rest would be
// expensive, so undo the merge.
//
// The part's keys are among those of the whole. If a part has no keys, its log-sum-exp is -inf, its O was
// never written, and the row stays as it is. If the part is all that the row saw, or slightly more after
// rounding, no key is left: O = 0 and the log-sum-exp is -inf. A log-sum-exp may be as large as 10000.

// BEGIN EXERCISE ch10-merge: a part out again
/// Removes a part from each row, in place. Grid: rows; a block is a warp.
template <int kHeadDim>
__global__ void __launch_bounds__(32) take_out(const float* part_o,                     // [rows, kHeadDim]
                                               [[maybe_unused]] const float* part_lse,  // [rows]
                                               float* o,                                // [rows, kHeadDim]
                                               float* lse) {                            // [rows]
  // TODO: what is left when the part's keys are gone; this only halves
  const int row = blockIdx.x;
  for (int column = threadIdx.x; column < kHeadDim; column += 32)
    o[row * kHeadDim + column] = 2 * o[row * kHeadDim + column] - part_o[row * kHeadDim + column];
  if (threadIdx.x == 0) lse[row] -= 0.6931471805599453f;
}
// END EXERCISE ch10-merge

}  // namespace flashbook::many_gpus
