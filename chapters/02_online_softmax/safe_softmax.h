/// \file
/// Step 1 - safe softmax in three passes over a row of scores.
///
/// Chapter 1 computes softmax(x)_j = exp(x_j) / sum_i exp(x_i) of every row of a score matrix in device
/// memory. Here is the same on one core and for one row at a time, as plainly as it can be written; the next
/// steps take it apart.
///
/// The idea: exp(89) overflows a float, and trained models have scores beyond that. A factor exp(-m) above
/// and below the fraction's line changes nothing, so softmax(x) = softmax(x - m) for every m. With m = max(x)
/// no exponent exceeds 0, no exponential exceeds 1, and the sum is at least 1: nothing overflows and nothing
/// divides by zero.
///
/// The budget: 4 bytes a key for the row of scores, 16 KB at 4096 keys, which fits the L1 cache. It is
/// written once and read by three passes and by the weighted sum, and each pass needs the whole row of the
/// pass before. At 128k keys the row is 512 KB, and every pass streams it from L2 or beyond: the passes are
/// what this chapter gets rid of.
///
/// Predicted: the dot products take nearly all of the time (see score() in rows.h: 4 cycles for each of 64
/// additions per key at d = 64), and the exponentials most of the rest. Measured: see the chapter's table.
#pragma once
#include <cmath>
#include <span>
#include <vector>

#include "chapters/02_online_softmax/rows.h"

namespace flashbook {

//| ## Two numbers of a row
//| The softmax of a row is known once its maximum $m$ and its sum $\ell = \sum_j e^{x_j - m}$ are. Neither means
//| anything alone: $\ell$ is measured in units of $e^m$. Together they are the row's log-sum-exp, $m + \ln \ell$,
//| which a backward pass needs and which every chapter returns beside O.

/// The softmax's state: of a whole row, or of the part of it that has been seen.
struct SoftmaxState {
  float row_max = kMinusInfinity;  ///< the largest score; -inf if there is none
  float row_sum = 0;               ///< sum of exp(score - row_max)

  /// ln(sum of exp(score)), without ever forming that sum.
  float log_sum_exp() const { return row_max + std::log(row_sum); }
};

//| ## Three passes
//| Each pass waits for a number that the pass before knows only at its end: the second needs the maximum, the third needs
//| the sum. That is why a row of scores has to be kept.

/// Turns scores into weights in place: they are >= 0 and sum to 1. Not for an empty row.
inline SoftmaxState safe_softmax(std::span<float> scores) {
  SoftmaxState state;
  for (float score : scores) state.row_max = std::max(state.row_max, score);
  for (float& score : scores) {
    score = std::exp(score - state.row_max);
    state.row_sum += score;
  }
  for (float& score : scores) score /= state.row_sum;
  return state;
}

//| ## The row of O
//| A fourth walk over the row: each value, weighted. The inner loop runs over `head_dim`, along a row of V as it lies in
//| memory, and its additions are independent of each other, so the compiler vectorises it.

/// One row of attention. Adds to `o`, [head_dim] zeros; returns the log-sum-exp.
inline float attention_row_safe(const Row& row, float* o) {
  std::vector<float> scores(row.keys);
  for (int key = 0; key < row.keys; ++key) scores[key] = score(row, key);

  const SoftmaxState state = safe_softmax(scores);

  for (int key = 0; key < row.keys; ++key) {
    const float* v = row.v + int64_t(key) * row.head_dim;  // [head_dim]
    for (int d = 0; d < row.head_dim; ++d) o[d] += scores[key] * v[d];
  }
  return state.log_sum_exp();
}

}  // namespace flashbook
