/// \file
/// Exercise ch08-merge: parts of a row, and a score without a key.
#pragma once
#include "common/device/kernel.h"

namespace flashbook::decoding {

// gpt-oss learns a sink logit for each head, a score that belongs to no key. In the softmax it takes weight
// like any other score, but contributes no value. The blocks that attend to parts of the keys ignore it, so
// it must be added where parts are merged, once per row.
//
// A part has a row of O, divided by its own sum, and its log-sum-exp (natural). A part without keys has -inf,
// and its O was never written. A sink logit of -inf means that there is none. The merged log-sum-exp is that
// of all scores including the sink logit. A row without keys is O = 0, and its log-sum-exp is the sink logit.

// BEGIN EXERCISE ch08-merge: parts and a sink
/// Merges the parts of a row, and its sink logit. Grid: rows; a block is a warp.
template <int kHeadDim>
__global__ void __launch_bounds__(32) merge_with_sink(const float* part_o,    // [parts, rows, kHeadDim]
                                                      const float* part_lse,  // [parts, rows]
                                                      [[maybe_unused]] const float* sink_logit,  // [rows]
                                                      [[maybe_unused]] int parts,
                                                      float* o,      // [rows, kHeadDim]
                                                      float* lse) {  // [rows]
  // TODO: all parts and the sink logit, not the first part alone
  const int row = blockIdx.x;
  for (int column = threadIdx.x; column < kHeadDim; column += 32)
    o[row * kHeadDim + column] = part_o[row * kHeadDim + column];
  if (threadIdx.x == 0) lse[row] = part_lse[row];
}
// END EXERCISE ch08-merge

}  // namespace flashbook::decoding
