//| # The problem of chapter 1's kernels
#pragma once
#include "common/device/kernel.h"

namespace flashbook::naive {

//| ## The problem, as a kernel sees it
//|
//| Six numbers describe the problem. They are passed to a kernel by value, along with the pointers. To a
//| kernel, a batch of 4 with 16 heads is simply 64 heads: it never needs to know which batch a head is in.
//|
//| The causal mask is aligned to the bottom right: the last query sees every key, and each earlier query sees
//| one key fewer. If there are more queries than keys, the first queries see none.
//|
//| ![Which keys a query sees if there are as many keys as queries, more, or
//| fewer](../../docs/figures/visible_keys.svg)

/// The shape of one launch. `head` below counts batch and heads together: head = b * heads + h.
struct Problem {
  int seqlen_q;      ///< query rows per head
  int seqlen_k;      ///< keys per head
  int group;         ///< query heads per key head (1 without grouped queries)
  int score_stride;  ///< distance of two rows of S or P, in elements: seqlen_k, rounded up for alignment
  bool causal;
  float scale;

  /// Returns the key head that serves query head `head`. Since heads = group * kv_heads, one division is
  /// enough for any batch.
  __device__ int kv_head(int head) const { return head / group; }

  /// Returns how many keys query row `query` sees.
  __device__ int visible_keys(int query) const {
    if (!causal) return seqlen_k;
    const int visible = query + 1 + seqlen_k - seqlen_q;
    return visible < 0 ? 0 : visible < seqlen_k ? visible : seqlen_k;
  }

  /// Returns the position of row `query` of a head's Q or O, in rows. It has 64 bits, because a tensor may
  /// have more than 2^31 elements.
  __device__ int64_t q_row(int head, int query) const { return int64_t(head) * seqlen_q + query; }

  /// Returns the position of row `key` of the K or V that serves `head`, in rows.
  __device__ int64_t k_row(int head, int key) const { return int64_t(kv_head(head)) * seqlen_k + key; }
};

}  // namespace flashbook::naive
