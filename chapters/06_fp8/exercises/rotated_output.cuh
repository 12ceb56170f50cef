/// \file
/// Exercise ch06-rotation: an output that must be rotated back, where wgmma left it.
#pragma once
#include "chapters/06_fp8/step4_hadamard.cuh"

namespace flashbook::quantiser {

// Here V is rotated, too, before it is quantised, which spreads one large value over all columns. The output
// is a sum of rows of V, so it comes out rotated, O M with M = diag(s) H / sqrt(d), and nothing else in the
// kernel cancels that. It must be multiplied by the inverse, which is the transpose. H is symmetric:
//
//     M^T = H diag(s) / sqrt(d)
//
// In the quantiser a row is spread over 8 or more lanes, eight neighbouring columns in each. Here O is a
// wgmma accumulator, its columns in natural order. Float i of lane t of a quad belongs to the first of the
// lane's two rows if i / 2 is even, else to the second, and it is column 8 * (i / 4) + 2 t + i % 2. So a row
// is spread over the four lanes of the quad, between the floats of another row.

/// Multiplies both rows of which a thread holds a part by H diag(s). The factor 1 / sqrt(d) is not applied
/// here: the division by the row sums includes it. All lanes of the warp.
template <int kHeadDim>
__device__ __forceinline__ void rotate_back(float (&output)[kHeadDim / 2], const Signs<kHeadDim>& signs) {
  constexpr int kFloats = kHeadDim / 2;
  const int thread = threadIdx.x % 4;
  // BEGIN EXERCISE ch06-rotation: sums and differences
  // TODO: first H, then the signs. Which bits of a column's number come from the float's number, which from
  // the lane's, and which bit of the float's number does not occur in it?
  static_cast<void>(thread), static_cast<void>(signs);
  for (int i = 0; i < kFloats; ++i) output[i] += 1;
  // END EXERCISE ch06-rotation
}

}  // namespace flashbook::quantiser
