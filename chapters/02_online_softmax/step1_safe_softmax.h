//| # Step 1: safe softmax in three passes
//|
//| Chapter 1 computes the softmax of every row of a score matrix in device memory,
//| $p_j = e^{x_j} / \sum_i e^{x_i}$. Here it is again, on one core, for one row at a time, as simply as
//| possible. The next steps take it apart.
//|
//| **Idea.** $e^{89}$ overflows a float, and nothing keeps a score below 89. But numerator and denominator
//| can both be multiplied by $e^{-m}$, so $m$ can be subtracted from every score. If $m$ is the largest of
//| them, no exponent exceeds 0, no exponential exceeds 1, and the sum is at least 1: nothing overflows, and
//| nothing is divided by 0.
//|
//| **Budget.** 4 bytes per key for the row of scores: 16 KB at 4096 keys, which fits into a core's L1 cache.
//| The row is written once and then read four times. At 128k keys it is 512 KB, and every pass reads it from
//| the L2 or beyond. This chapter gets rid of these passes.
#pragma once
#include <cmath>
#include <span>
#include <vector>

#include "chapters/02_online_softmax/rows.h"

namespace flashbook {

//| ## Two numbers of a row
//|
//| The softmax of a row is known once its maximum $m$ and its sum $\ell = \sum_j e^{x_j - m}$ are known.
//| $\ell$ means nothing without $m$: its unit is $e^m$. Together they give the row's log-sum-exp,
//| $m + \ln \ell$, which a backward pass needs and which every chapter returns along with O.
//|
//| An empty state has the maximum $-\infty$, so that any first score is larger, and the sum 0.

/// The state of the softmax of a row, or of the part of it that has been read.
struct SoftmaxState {
  float row_max = kMinusInfinity;  ///< the largest score; -inf if there is none yet
  float row_sum = 0;               ///< sum of exp(score - row_max)

  /// ln(sum of exp(score)), without ever forming that sum.
  float log_sum_exp() const { return row_max + std::log(row_sum); }
};

//| ## Three passes
//|
//| Each pass waits for a number that the previous pass only knows at its end. The second needs the maximum,
//| and the third needs the sum. That is why the row of scores has to be kept.
//|
//| The second pass overwrites each score with its exponential. Otherwise, the third pass would have to
//| compute it again.

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
//| A fourth pass over the row sums the weighted values. The inner loop runs over `head_dim`, along a
//| contiguous row of V. Its additions update different elements of O, so none waits for another, and the
//| compiler turns them into vectors.

/// Computes one row of attention. Adds to `o`, [head_dim] zeros; returns the log-sum-exp.
inline float attention_row_safe(const Row& row, float* o) {
  std::vector<float> scores(row.keys);  // step 3 does not need this memory
  for (int key = 0; key < row.keys; ++key) scores[key] = score(row, key);

  const SoftmaxState state = safe_softmax(scores);

  for (int key = 0; key < row.keys; ++key) {
    const float* v = row.v + int64_t(key) * row.head_dim;  // [head_dim]
    for (int d = 0; d < row.head_dim; ++d) o[d] += scores[key] * v[d];
  }
  return state.log_sum_exp();
}

}  // namespace flashbook
