//| # Step 3: attention in one pass
//|
//| Step 2 keeps a row of scores for one reason only: the weights need the final maximum and sum. But O is a
//| sum with the same weights as `row_sum`, so the same correction repairs it.
//|
//| **Idea.** Sum the values while the maximum is still changing, and correct the sum. A score is
//| then computed, used and forgotten (Rabe and Staats, [arXiv 2112.05682](https://arxiv.org/abs/2112.05682);
//| Dao et al., FlashAttention, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135)).
//|
//| **Budget.** A row of O, two floats of state, and one score at a time, however many keys there are: the
//| memory that attention needs no longer depends on the number of keys. In exchange, every key corrects the
//| whole row of O, which costs `head_dim` multiplications in addition to the `head_dim` multiply-adds that
//| are needed anyway.
#pragma once
#include "chapters/02_online_softmax/rows.h"
#include "chapters/02_online_softmax/step2_online_softmax.h"

namespace flashbook {

//| ## O in the same pass
//|
//| Leave out the division in the row of O: $\tilde{o} = \sum_j e^{x_j - m}\, v_j$. This is $\ell$ with $v_j$
//| in place of 1, so the same rule applies: when $m$ changes, one factor corrects the whole sum. The division
//| by $\ell$ waits until the end, where $\ell$ is known and one division per row is enough.
//|
//| While the maximum does not change, the correction is 1 and multiplying by it is wasted work. That is the
//| usual case: in random order, the $j$-th score is a new maximum with probability $1/j$, about 9 times
//| in 4096. Step 4 corrects once per tile, and later chapters check whether to correct at all.

/// Computes one row of attention. Adds to `o`, [head_dim] zeros; returns the log-sum-exp.
inline float attention_row_one_pass(const Row& row, float* o) {
  SoftmaxState state;  // only the state and `o` survive from one key to the next
  for (int key = 0; key < row.keys; ++key) {
    const Factors factors = update(state, score(row, key));
    const float* v = row.v + int64_t(key) * row.head_dim;  // [head_dim]
    for (int d = 0; d < row.head_dim; ++d) o[d] = o[d] * factors.correction + factors.weight * v[d];
  }

  for (int d = 0; d < row.head_dim; ++d) o[d] /= state.row_sum;  // at least 1: the largest score adds exp(0)
  return state.log_sum_exp();
}

}  // namespace flashbook
