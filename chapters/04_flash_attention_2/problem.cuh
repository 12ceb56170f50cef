//| # The problem of chapter 4's kernels
#pragma once
#include "common/device/kernel.h"

namespace flashbook::fa2 {

//| ## The problem, as a kernel sees it
//|
//| A problem is six numbers, passed by value as launch arguments, so that they cost no load. To every kernel,
//| a batch of 4 with 16 heads is simply 64 heads. The scale is passed twice, since some steps compute $e^x$
//| and others $2^x$.
//|
//| The causal mask is aligned to the bottom right: the last query sees every key. With fewer keys than
//| queries the first queries see none, and every kernel must give them $O = 0$ and a log-sum-exp of
//| $-\infty$.
//|
//| ![Which keys a query sees if there are as many keys as queries, more, or
//| fewer](../../docs/figures/visible_keys.svg)

/// The shape of one launch. `head` below counts over batch and heads together: head = b * heads + h.
struct Problem {
  int seqlen_q;  ///< query rows of a head
  int seqlen_k;  ///< keys of a head
  int group;     ///< query heads that share one key head (1 unless grouped-query)
  bool causal;
  float scale;        ///< factor on the scores
  float scale_log2e;  ///< the same times log2(e): exp(scale * s) = 2^(scale_log2e * s)

  /// Returns how many keys query row `query` sees; for rows beyond the last, as if the mask continued.
  __device__ int visible_keys(int query) const {
    const int visible = causal ? query + 1 + seqlen_k - seqlen_q : seqlen_k;
    return visible < 0 ? 0 : visible < seqlen_k ? visible : seqlen_k;
  }

  /// Returns the row at which a head's Q and O start. 64 bits: a tensor may hold more than 2^31 elements.
  __device__ int64_t q_row(int head) const { return int64_t(head) * seqlen_q; }

  /// Returns where the K and V that serve `head` start, in rows. Since heads = group * kv_heads, one division
  /// is enough for any batch.
  __device__ int64_t k_row(int head) const { return int64_t(head / group) * seqlen_k; }
};

}  // namespace flashbook::fa2
