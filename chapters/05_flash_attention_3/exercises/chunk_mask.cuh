/// \file
/// Exercise ch05-mask: a mask with two edges.
#pragma once
#include "common/device/kernel.h"

namespace flashbook::fa3 {

// Some models attend in chunks (Llama 4 does, in most of its layers). Keys are cut into chunks of equal
// length, and a query sees the keys of its own chunk that are not after it. So each row of scores has a first
// key and a last key, and either of them may be inside a tile.

/// The shape, as far as the mask needs it. Query i is the token at key own_key(i), and with a chunk of 8 the
/// query at key 19 sees keys 16 to 19.
struct ChunkedProblem {
  int seqlen_q, seqlen_k;
  int chunk;  ///< keys of a chunk: number c has keys c * chunk to (c + 1) * chunk - 1

  /// The last query is the last key's token. Negative: there is no such key, and the query sees none.
  __device__ int own_key(int query) const { return query + seqlen_k - seqlen_q; }
};

/// Scores of keys that a row does not see become -inf. The tile is one of 64 queries and 2 * kFloats keys,
/// distributed as by wgmma (common/ptx/wgmma_layout.h). `query` is the first of the thread's two rows,
/// `first_key` the tile's first. Rows beyond the last query do not matter.
template <int kFloats>
__device__ __forceinline__ void mask_chunks(float (&scores)[kFloats],  // a thread's part of [64, 2 * kFloats]
                                            const ChunkedProblem& problem, int query, int first_key) {
  // BEGIN EXERCISE ch05-mask: the first key of a row and the last
  // TODO: so far a thread's first score, as if it were in the first column of the tile.
  if (first_key > problem.own_key(query)) scores[0] = -INFINITY;
  // END EXERCISE ch05-mask
}

}  // namespace flashbook::fa3
