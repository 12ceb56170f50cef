//| # The problem
//|
//| This is a kernel's view of the shape: which query sees which key, and where each row is stored.
//|
//| A backward pass has eight tensors with rows of `head_dim` elements: the inputs Q, K, V, O and dO, and the
//| outputs dQ, dK and dV. Each may have its own layout in memory, so the kernel receives strides for all of
//| them. Strides are launch arguments, in constant memory, and cost no register until they are used.
//|
//| ![The causal mask is aligned to the bottom right: the last query sees every
//| key](../../docs/figures/visible_keys.svg)
#pragma once
#include "common/attention/layout.h"
#include "common/attention/spec.h"
#include "common/hopper/gradient_prepare.h"
#include "common/hopper/problem.h"
#include "common/numeric/arithmetic.h"

namespace flashbook::backward {

using namespace hopper;

//| ## One number for each mask
//|
//| Chapter 5 needs the last key of a query. A block that owns keys needs the opposite, the first query that
//| sees a key. Under the causal mask that is `key + seqlen_q - seqlen_k`, and earlier tiles of queries need
//| not be visited at all. Since the mask ends in the lower right corner, the last query sees every key. So
//| some query sees each key. But with more queries than keys, the first queries see no key, and their dQ must
//| be zero.
/// The shape of one launch. Query heads are numbered over batch and heads together, and so are key heads:
/// query head h reads key head h / group.
struct Problem {
  int seqlen_q;      ///< queries per head
  int seqlen_k;      ///< keys per head
  int kv_heads;      ///< key heads per batch entry
  int group;         ///< query heads that share one key head (1 unless grouped-query)
  bool causal;       ///< aligned to the bottom right: the last query sees every key
  float scale;       ///< factor on the scores, and so on dQ and dK
  float scale_log2;  ///< scale * log2(e): exp(scale * s) is 2^(scale_log2 * s), and 2^x is one instruction
  int padded_q;      ///< rows per head in the workspace: seqlen_q, rounded up to whole tiles
  Layout at;         ///< the strides of all tensors
  int head_dim;      ///< columns of all tensors; tiles of steps 3 to 6 may have more
  int sharing = 1;   ///< if blocks keep keys for one query head each: how many share a key head. Then `group`
                     ///< is 1, and `kv_heads` counts query heads

  /// Returns the last key that `query` sees; negative if it sees none.
  __device__ int last_key(int query) const {
    return causal ? min(query + seqlen_k - seqlen_q, seqlen_k - 1) : seqlen_k - 1;
  }

  /// Returns the first query that sees `key`; seqlen_q or more if none does.
  __device__ int first_query(int key) const { return causal ? max(key + seqlen_q - seqlen_k, 0) : 0; }

  //| Query heads are numbered over the whole batch, so that a block needs one number for its head. With
  //| grouped queries `group` query heads read one key head, and a key head's gradient is the sum over its
  //| group. Offsets are 64 bits wide: a tensor may have more than $2^{31}$ elements.
  /// Returns the offset of row `row` of a query head, in a tensor with these strides.
  __device__ int64_t query_offset(const Strides& strides, int head, int row) const {
    const int heads = kv_heads * group;
    return head / heads * strides.batch + head % heads * strides.head + row * strides.row;
  }

  /// Returns the offset of row `row` of a key head.
  __device__ int64_t key_offset(const Strides& strides, int head, int row) const {
    return head / kv_heads * strides.batch + head % kv_heads * strides.head + row * strides.row;
  }

  /// Returns the first row of a query head of a batch entry in the workspace.
  __device__ int workspace_row(int batch, int head) const {
    return (batch * kv_heads * group + head) * padded_q;
  }
};

//| ## From the shape to the launch
//|
//| The host fills the struct. `padded_q` is the number of rows per head in the workspace: whole tiles, so
//| that a kernel may read the log-sum-exps of a tile without checking where the queries end.
//| [`prepare.cuh`](prepare.cuh) fills the extra rows with values that make this harmless.
/// `tile`: the queries of a tile. The workspace holds whole tiles.
inline Problem problem_of(const Spec& spec, int tile) {
  return {.seqlen_q = spec.seqlen_q,
          .seqlen_k = spec.seqlen_k,
          .kv_heads = spec.kv_heads,
          .group = spec.heads / spec.kv_heads,
          .causal = spec.causal(),
          .scale = spec.scale,
          .scale_log2 = spec.scale * kLog2e,
          .padded_q = ceil_div(spec.seqlen_q, tile) * tile,
          .at = layout_given(spec),
          .head_dim = spec.head_dim};
}

/// Returns the same with a key head for each query head, whose keys and gradients `sharing` of them share.
inline Problem head_by_head(Problem problem) {
  problem.sharing = problem.group;
  problem.kv_heads *= problem.group;
  problem.group = 1;
  return problem;
}

}  // namespace flashbook::backward
