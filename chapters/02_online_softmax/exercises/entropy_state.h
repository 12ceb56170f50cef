/// \file
/// Exercise ch02-merge: the merge rule for a state of three numbers.
#pragma once
#include <algorithm>
#include <cmath>

#include "chapters/02_online_softmax/rows.h"

namespace flashbook {

// The entropy of a row's probabilities shows whether a query attends to one key or to all of them. With the
// log-sum-exp L, it is the mean of L - x under these probabilities. One pass over the row can compute it, if
// the state has a third number, a sum.

/// The state for a part of a row of scores x.
struct EntropyState {
  float row_max = kMinusInfinity;
  float row_sum = 0;    ///< sum of exp(x - row_max)
  float score_sum = 0;  ///< sum of x * exp(x - row_max)

  float entropy() const { return row_max + std::log(row_sum) - score_sum / row_sum; }
};

/// Returns the state of a single score. A masked score is -inf, and must not lead to NaN.
inline EntropyState state_of_score(float score) {
  return {.row_max = score, .row_sum = 1, .score_sum = score};
}

/// Merges a part of the row into `state`.
inline void merge(EntropyState& state, const EntropyState& part) {
  // BEGIN EXERCISE ch02-merge: the merge rule, with a third number
  // TODO: This adds sums that are relative to different maxima.
  state.row_sum += part.row_sum;
  state.score_sum += part.score_sum;
  // END EXERCISE ch02-merge
}

}  // namespace flashbook
