/// \file
/// What a kernel of a Hopper chapter knows of its problem. Tensors reach it as tensor maps; what is left are
/// the numbers that decide which query sees which key.
///
/// All of common/hopper is what chapter 5 (chapters/05_flash_attention_3) spells out and explains, for later
/// chapters to take as it is. tests/chapters/hopper_test.cu holds the two equal.
#pragma once
#include "common/attention/layout.h"
#include "common/device/divisor.h"
#include "common/device/kernel.h"

namespace flashbook::hopper {

constexpr int kWarpgroup = 128;  ///< threads: four warps, that multiply together
constexpr int kWarpsOfWarpgroup = 4;
constexpr int kRowsOfWarpgroup = 64;  ///< query rows that a warpgroup owns: m of wgmma
constexpr int kRowsOfWarp = 16;       ///< query rows that a warp's registers hold
constexpr unsigned kWholeWarp = 0xffffffff;
constexpr int kMostSharedBytes = 227 * 1024;  ///< of a block, on sm_90

/// A query head, and the entry of the batch that it belongs to.
struct Head {
  int head, batch;
};

/// The shape of one launch.
struct Problem {
  int seqlen_q;           ///< query rows of a head
  int seqlen_k;           ///< keys of a head
  device::Divisor heads;  ///< query heads of a batch entry
  device::Divisor group;  ///< query heads that share one key head (1 unless grouped-query)
  bool causal;            ///< aligned to the bottom right: the last query sees every key
  float scale_log2;       ///< scale * log2(e): exp(scale * s) is 2^(scale_log2 * s)
  Strides o_strides;      ///< of O, for stores that do not go by a tensor map

  /// Its number over batch and heads together: which part of the log-sum-exp is its own.
  __device__ int number(Head q) const { return q.batch * heads + q.head; }

  /// The query head of that number.
  __device__ Head head_of(int number) const { return {number % heads, number / heads}; }

  /// The key head that serves a query head.
  __device__ Head kv_head(Head q) const { return {q.head / group, q.batch}; }

  /// How many elements lie between the first of O and the first of row `query` of a head.
  __device__ int64_t o_offset(Head q, int query) const {
    return q.batch * o_strides.batch + q.head * o_strides.head + query * o_strides.row;
  }

  /// How many tiles of `rows` queries a head has.
  __host__ __device__ int query_tiles(int rows) const { return (seqlen_q + rows - 1) / rows; }

  /// The last key that `query` sees; negative if it sees none. Rows beyond the end see what the last one
  /// does.
  __device__ int last_key(int query) const {
    return causal ? min(query + seqlen_k - seqlen_q, seqlen_k - 1) : seqlen_k - 1;
  }

  /// How many tiles of `keys` keys the queries up to `last_query` see. At least one: a tile of queries that
  /// see nothing multiplies one tile of keys, and the mask makes zeros of it.
  __device__ int key_tiles(int last_query, int keys) const { return max(last_key(last_query), 0) / keys + 1; }
};

/// Scores of keys that a row does not see become -inf. `scores` are a thread's of 64 rows as wgmma deals them
/// out, `query` is the first of its two rows, `first_key` the tile's first. Chapter 5 has another loop: that
/// one is the solution of an exercise.
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
    for (int row = 0; row < 2; ++row)
#pragma unroll
      for (int column = 0; column < 2; ++column)
        if (8 * group + column > limit[row]) scores[4 * group + 2 * row + column] = -INFINITY;
}

/// Whether some row from `first_query` on does not see all of the `keys` keys from `first_key` on.
__device__ __forceinline__ bool needs_mask(const Problem& problem, int first_query, int first_key, int keys) {
  return first_key + keys - 1 > problem.last_key(first_query);
}

}  // namespace flashbook::hopper
