#pragma once
#include "common/device/kernel.h"

namespace flashbook::fp8 {

//| ## The problem, as a kernel sees it
//|
//| Tensors reach these kernels as tensor maps, so a kernel asks for rows and never computes an address. What is left are the
//| numbers that decide which query sees which key, and the scales: an element of Q, K or V stands for its encoding times
//| the scale of its block of rows.

/// The scales of one tensor.
struct Scales {
  const float* scale;  ///< null: all are 1
  int of_head;         ///< how many a head has: 0 if all heads share one
  int of_block;        ///< 1 if each block of rows has one, else 0

  /// The scale of a block of rows of a head.
  __device__ __forceinline__ float at(int head, int block) const {
    return scale == nullptr ? 1.0f : __ldg(scale + int64_t(head) * of_head + block * of_block);
  }
};

/// The shape of one launch. `head` counts over batch and heads together: head = b * heads + h.
struct Problem {
  int seqlen_q;       ///< query rows of a head
  int seqlen_k;       ///< keys of a head
  int heads;          ///< batch * heads
  int group;          ///< query heads that share one key head (1 unless grouped-query)
  bool causal;        ///< aligned to the bottom right: the last query sees every key
  float scale_log2;   ///< scale * log2(e): exp(scale * s) is 2^(scale_log2 * s), and 2^x is one instruction
  Scales q_scale;     ///< of query heads, blocks of 64 rows; or of key heads
  bool q_by_kv_head;  ///< which of the two
  Scales k_scale, v_scale;  ///< of key heads, blocks of 128 rows

  /// Which key head serves query head `head`.
  __device__ int kv_head(int head) const { return head / group; }

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

constexpr int kWarpgroup = 128;  ///< threads: four warps, that multiply together
constexpr int kWarpsOfWarpgroup = 4;
constexpr int kRowsOfWarpgroup = 64;  ///< query rows that a warpgroup owns: m of wgmma
constexpr int kRowsOfWarp = 16;       ///< query rows that a warp's registers hold
constexpr unsigned kWholeWarp = 0xffffffff;

}  // namespace flashbook::fp8
