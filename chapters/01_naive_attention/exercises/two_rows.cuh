/// \file
/// Exercise ch01-shuffles: reductions of two rows that share a warp.
#pragma once
#include "common/device/kernel.h"

namespace flashbook::naive {

// A warp per row is wasteful for short rows. Here, a warp has two: the even lanes hold one row, the odd lanes
// the other. So 16 lanes have to agree, and neighbouring lanes belong to different rows.

/// A score and its key.
struct Scored {
  float score;
  int key;
};

// BEGIN EXERCISE ch01-shuffles: two rows in a warp, four rounds
/// Returns the largest score of the lane's row with its key, in every lane of the row. If scores are
/// equal, the smaller key wins.
inline __device__ Scored row_largest(Scored mine) {
  return mine;  // TODO: so far, each lane has only its own
}

/// Returns the sum of `value` over the lane's row, in every lane of the row.
inline __device__ float row_sum(float value) {
  return value;  // TODO: so far, each lane has only its own
}
// END EXERCISE ch01-shuffles

}  // namespace flashbook::naive
