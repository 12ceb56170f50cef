//| # Step 2: maximum and sum in one pass
//|
//| Step 1 passes over a row of scores four times, because the sum of $e^{x-m}$ needs the maximum $m$ first.
//| Milakov and Gimelshein ([arXiv 1805.02867](https://arxiv.org/abs/1805.02867)) start the sum before the
//| maximum is known.
//|
//| **Idea.** Use the largest score so far in place of the maximum, and correct the sum whenever a larger one
//| arrives. Two passes remain: one for maximum and sum, one for weights and values.
//|
//| **Budget.** The same row of scores, 4 bytes per key, is now written once and read once. In exchange, every
//| score costs two exponentials in the first pass, one for the correction and one for the sum. Including the
//| second pass, that makes three, where step 1 needs one.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "chapters/02_online_softmax/rows.h"
#include "chapters/02_online_softmax/step1_safe_softmax.h"

namespace flashbook {

//| ## What a merge returns
//|
//| The caller may have more sums relative to the old maximum than the state's two numbers. Step 3 sums values
//| with the same weights, and must correct these sums by the same factors. So a merge returns them.

/// The factors by which a merge multiplies both sides.
struct Factors {
  float correction;  ///< for the old sums: exp(old row_max - new row_max)
  float weight;      ///< for the incoming part: exp(its row_max - new row_max)
};

//| ## The merge rule
//|
//| Let a row consist of two parts, $A$ and $B$, split in any way, with states $(m_A, \ell_A)$ and
//| $(m_B, \ell_B)$. The maximum of both is $m = \max(m_A, m_B)$. And since $e^{x-m} = e^{x-m_A}\, e^{m_A-m}$,
//| each part's sum gets a common factor:
//|
//| $$ \begin{aligned} \ell &= \sum_{x \in A} e^{x-m} + \sum_{x \in B} e^{x-m} \\ &= \ell_A\, e^{m_A-m} + \ell_B\, e^{m_B-m} \end{aligned} $$
//|
//| No score is read again: two numbers stand for all of $A$. The rule takes parts of any size in any order,
//| so it works for one score at a time (steps 2 and 3), for one tile at a time (step 4), and for threads that
//| each saw some of the keys (chapter 3). One of the two exponents is 0 and the other is not above it, so
//| nothing overflows.

/// Merges a part of the row into `state`.
inline Factors merge(SoftmaxState& state, const SoftmaxState& part) {
  const float new_max = std::max(state.row_max, part.row_max);
  // So far, all scores are masked: both exponents would be -inf - -inf, which is NaN. The state stays
  // empty.
  if (new_max == kMinusInfinity) return {.correction = 1, .weight = 0};

  // At the start the correction is exp(-inf - x) = 0: there is nothing to keep.
  const Factors factors = {.correction = std::exp(state.row_max - new_max),
                           .weight = std::exp(part.row_max - new_max)};
  state.row_sum = state.row_sum * factors.correction + part.row_sum * factors.weight;
  state.row_max = new_max;  // last, because the correction needs the old one
  return factors;
}

//| ## One score at a time
//|
//| A single score is also a part: its maximum is the score itself, and its sum is $e^0 = 1$. For such a part,
//| the rule is the update of the paper, $\ell \leftarrow \ell\, e^{m_{\text{old}}-m} + e^{x-m}$.
//|
//| One of the two exponentials is always $e^0$. `std::exp` is called anyway, since finding out which one
//| would take a branch. In step 4, there is only one correction for a whole row of a tile.

/// Merges one score into `state`.
inline Factors update(SoftmaxState& state, float score) {
  return merge(state, {.row_max = score, .row_sum = 1});
}

//| ## Two passes
//|
//| The first pass computes each score, stores it and merges it into the state. The second pass turns scores
//| into weights and adds up the values at once, since $m$ and $\ell$ are final by then. Only this second pass
//| still needs the row of scores.

/// Computes one row of attention. Adds to `o`, [head_dim] zeros; returns the log-sum-exp.
inline float attention_row_two_passes(const Row& row, float* o) {
  std::vector<float> scores(row.keys);
  SoftmaxState state;
  for (int key = 0; key < row.keys; ++key) {
    scores[key] = score(row, key);  // kept only for the second pass
    update(state, scores[key]);
  }

  for (int key = 0; key < row.keys; ++key) {
    // Recompute the exponential: the maximum may have changed during the first pass.
    const float weight = std::exp(scores[key] - state.row_max) / state.row_sum;
    const float* v = row.v + int64_t(key) * row.head_dim;  // [head_dim]
    for (int d = 0; d < row.head_dim; ++d) o[d] += weight * v[d];
  }
  return state.log_sum_exp();
}

}  // namespace flashbook
