//| # Masks
//|
//| Two things hide keys: the end of the sequence, where TMA has filled in zeros (whose score would be 0, not
//| -inf), and the causal diagonal. For a row, both mean the same: there is a last key that it sees. So one
//| comparison per score is enough, and only tiles that contain such a last key need it. Chapter 10, in which
//| a rank has only a part of a sequence's tokens, has its own problem type.
//|
//| ![The causal mask is aligned to the bottom right: the last query sees every
//| key](../../docs/figures/visible_keys.svg)
#pragma once
#include "common/hopper/softmax.h"

namespace flashbook::hopper {

/// Sets the scores of keys that a row does not see to -inf. `scores` are a thread's part of 64 rows in
/// wgmma's layout, `query` is the first of its two rows, and `first_key` the tile's first key.
template <int kFloats, typename AnyProblem>
__device__ __forceinline__ void mask(float (&scores)[kFloats], const AnyProblem& problem, int query,
                                     int first_key) {
  // Float i belongs to column 8 * (i / 4) + 2 * (lane % 4) + i % 2. The thread's part of this is subtracted
  // from the limit, so that each comparison is with a constant.
  const int thread_key = first_key + 2 * int(threadIdx.x % 4);
  const int limit[2] = {problem.last_key(query) - thread_key, problem.last_key(query + 8) - thread_key};
#pragma unroll
  for (int i = 0; i < kFloats; ++i)
    if (i / 4 * 8 + i % 2 > limit[row_of(i)]) scores[i] = -INFINITY;
}

/// Returns whether any row from `first_query` on does not see all of the `keys` keys from `first_key` on.
template <typename AnyProblem>
__device__ __forceinline__ bool needs_mask(const AnyProblem& problem, int first_query, int first_key,
                                           int keys) {
  return first_key + keys - 1 > problem.last_key(first_query);
}

}  // namespace flashbook::hopper
