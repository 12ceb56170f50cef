//| # Step 1: safe softmax in three passes
//|
//| Chapter 1 computes the softmax of every row of a score matrix in device memory,
//| $p_j = e^{x_j} / \sum_i e^{x_i}$. Here is the same on one core, for one row at a time, as plainly as it
//| can be written. The next steps take it apart.
//|
//| **Idea.** $e^{89}$ is more than a float can hold, and nothing keeps a score below 89. But numerator and
//| denominator may both be multiplied by $e^{-m}$, so $m$ may be subtracted from every score. With $m$ the
//| largest of them no exponent exceeds 0, no exponential exceeds 1, and the sum is at least 1: nothing
//| overflows, and nothing is divided by 0.
//|
//| **Budget.** 4 bytes per key for the row of scores: 16 KB at 4096 keys, which fits the L1 cache of a core.
//| The row is written once and then walked four times. At 128k keys it is 512 KB, and every walk fetches it
//| from L2 or beyond. This chapter gets rid of the walks.
#pragma once
#include <cmath>
#include <span>
#include <vector>

#include "chapters/02_online_softmax/rows.h"

namespace flashbook {

//| ## Two numbers of a row
//|
//| The softmax of a row is known once its maximum $m$ and its sum $\ell = \sum_j e^{x_j - m}$ are. $\ell$
//| means nothing without $m$: its unit is $e^m$. Together they give the row's log-sum-exp, $m + \ln \ell$,
//| which a backward pass needs and which every chapter returns with O.
//|
//| A state that has seen nothing has the maximum $-\infty$, so that the first score is larger, and the sum 0.

/// The softmax's state: of a whole row, or of the part of it that has been seen.
struct SoftmaxState {
  float row_max = kMinusInfinity;  ///< the largest score; -inf while there is none
  float row_sum = 0;               ///< sum of exp(score - row_max)

  /// ln(sum of exp(score)), without ever forming that sum.
  float log_sum_exp() const { return row_max + std::log(row_sum); }
};

//| ## Three passes
//|
//| Each pass waits for a number that the pass before knows only at its end: the second needs the maximum, the
//| third needs the sum. That is why a row of scores has to be kept.
//|
//| The second pass overwrites each score by its exponential. The third would otherwise have to compute it
//| again.

/// Turns scores into weights in place: they are >= 0 and sum to 1. Not for a row without a visible score.
inline SoftmaxState safe_softmax(std::span<float> scores) {
  SoftmaxState state;
  for (float score : scores) state.row_max = std::max(state.row_max, score);
  for (float& score : scores) {
    score = std::exp(score - state.row_max);  // at most exp(0), and exactly 1 for the largest
    state.row_sum += score;
  }
  for (float& score : scores) score /= state.row_sum;
  return state;
}

//| ## The row of O
//|
//| A fourth walk over the row adds up the weighted values. The inner loop runs over `head_dim`, along a
//| contiguous row of V. Its additions go to different elements of O, so none waits for another, and the
//| compiler turns them into vectors.

/// One row of attention. Adds to `o`, [head_dim] zeros; returns the log-sum-exp.
inline float attention_row_safe(const Row& row, float* o) {
  std::vector<float> scores(row.keys);  // the memory that step 3 does without
  for (int key = 0; key < row.keys; ++key) scores[key] = score(row, key);

  const SoftmaxState state = safe_softmax(scores);

  for (int key = 0; key < row.keys; ++key) {
    const float* v = row.v + int64_t(key) * row.head_dim;  // [head_dim]
    for (int d = 0; d < row.head_dim; ++d) o[d] += scores[key] * v[d];
  }
  return state.log_sum_exp();
}

}  // namespace flashbook
