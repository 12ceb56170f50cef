//| # Masks
//|
//| Two things hide keys: the end of the sequence, where TMA filled in zeros (their score would be 0, not -inf), and the
//| causal diagonal. Both say the same of a row: there is a last key that it sees. So one comparison per score does it, and
//| only tiles that contain a last key need it.
#pragma once
#include "chapters/06_fp8/problem.cuh"

namespace flashbook::fp8 {

/// Scores of keys that a row does not see become -inf. `query` is the first of the thread's two rows,
/// `first_key` the tile's first.
template <int kFloats>
__device__ __forceinline__ void mask(float (&scores)[kFloats], const Problem& problem, int query,
                                     int first_key) {
  // Of each group of 8 columns a thread has two neighbours, of either row. What varies by thread goes to the
  // limit's side, so that each comparison is with a constant.
  const int thread_key = first_key + 2 * int(threadIdx.x % 4);
  const int limit[2] = {problem.last_key(query) - thread_key, problem.last_key(query + 8) - thread_key};
#pragma unroll
  for (int group = 0; group < kFloats / 4; ++group)
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int column = 0; column < 2; ++column)
        if (8 * group + column > limit[r]) scores[4 * group + 2 * r + column] = -INFINITY;
}

/// Whether some row from `first_query` on does not see all of the `keys` keys from `first_key` on.
__device__ __forceinline__ bool needs_mask(const Problem& problem, int first_query, int first_key, int keys) {
  return first_key + keys - 1 > problem.last_key(first_query);
}

}  // namespace flashbook::fp8
