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

/// The shape of one launch. `head` below counts over batch and heads together: head = b * heads + h.
struct Problem {
  int seqlen_q;      ///< query rows of a head
  int seqlen_k;      ///< keys of a head
  int group;         ///< query heads that share one key head (1 unless grouped-query)
  int score_stride;  ///< elements between two rows of S, and of P: seqlen_k, or a little more for alignment
  bool causal;
  float scale;

  /// Which key head serves query head `head`. Since heads = group * kv_heads, one division is enough for any
  /// batch.
  __device__ int kv_head(int head) const { return head / group; }

  /// How many keys query row `query` sees.
  __device__ int visible_keys(int query) const {
    if (!causal) return seqlen_k;
    const int visible = query + 1 + seqlen_k - seqlen_q;
    return visible < 0 ? 0 : visible < seqlen_k ? visible : seqlen_k;
  }

  /// Where row `query` of a head's Q or O starts, in rows. 64 bits: a tensor may hold more than 2^31
  /// elements.
  __device__ int64_t q_row(int head, int query) const { return int64_t(head) * seqlen_q + query; }

  /// Where row `key` of the K or V that serves `head` starts, in rows.
  __device__ int64_t k_row(int head, int key) const { return int64_t(kv_head(head)) * seqlen_k + key; }
};

}  // namespace flashbook::naive
