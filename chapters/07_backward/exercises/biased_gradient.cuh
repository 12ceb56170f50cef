/// \file
/// Exercise ch07-ds: dS where the scores have a learned bias.
#pragma once
#include "common/device/kernel.h"
#include "common/ptx/math.h"

namespace flashbook::backward {

// Models of proteins add a learned number to each score, the *pair bias* B: P = exp(scale * S + B - L). All
// heads of a launch share it here. Its gradient is the sum of dS over the heads, so a tile of dS is not only
// multiplied: it is also added to dB. As in step 3, keys go down and queries across: two products have left
// S^T and dP^T in the registers of a warpgroup, distributed as by wgmma (common/ptx/wgmma_layout.h).

/// The shape, as far as a tile needs it.
struct BiasedProblem {
  int seqlen_q, seqlen_k;
  bool causal;       ///< aligned to the bottom right: the last query sees every key
  float scale_log2;  ///< scale * log2(e): exp(scale * s) is 2^(scale_log2 * s)
};

/// p becomes P^T, which is 0 where a query does not see a key; ds becomes dS^T = P^T (dP^T - D), and is added
/// to dB. The tile is one of 64 keys and kQueries queries. `key` is the first of the thread's two rows,
/// `first_query` the tile's first. Elements outside of the bias must not be read or written.
template <int kQueries>
__device__ __forceinline__ void to_biased_ds(
    float (&p)[kQueries / 2],   // a thread's part of S^T [64, kQueries]
    float (&ds)[kQueries / 2],  // the thread's part of dP^T [64, kQueries]
    const BiasedProblem& problem,
    const float* bias_log2,  // [seqlen_q, seqlen_k]: B * log2(e)
    float* d_bias,           // [seqlen_q, seqlen_k]: dB so far
    const float* lse_log2,   // [kQueries], of the tile: L * log2(e)
    const float* d,          // [kQueries], of the tile
    int key, int first_query) {
  // BEGIN EXERCISE ch07-ds: dS where S was
  // TODO: P^T, dS^T, and the contribution to dB.
  static_cast<void>(p), static_cast<void>(ds), static_cast<void>(problem), static_cast<void>(bias_log2);
  static_cast<void>(d_bias), static_cast<void>(lse_log2), static_cast<void>(d), static_cast<void>(key);
  static_cast<void>(first_query);
  // END EXERCISE ch07-ds
}

}  // namespace flashbook::backward
