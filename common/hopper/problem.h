//| # The problem
//|
//| The numbers that a kernel needs to know about the shape, and the few sizes fixed by Hopper's instructions.
//|
//| ![The causal mask is aligned to the bottom right: the last query sees every
//| key](../../docs/figures/visible_keys.svg)
#pragma once
#include "common/attention/layout.h"
#include "common/device/divisor.h"
#include "common/device/kernel.h"

namespace flashbook::hopper {

constexpr int kWarpgroup = 128;  ///< threads: four warps that multiply together
constexpr int kWarpsPerWarpgroup = 4;
constexpr int kRowsPerWarpgroup = 64;  ///< query rows that a warpgroup owns: m of wgmma
constexpr int kRowsPerWarp = 16;       ///< query rows that a warp's registers hold
constexpr unsigned kWholeWarp = 0xffffffff;
constexpr int kMaxSharedBytes = 227 * 1024;  ///< shared memory per block on sm_90

/// Columns of the tiles for a head dimension: 64, 128 or 256. Columns beyond head_dim are zeros (`tiles.h`).
constexpr int tile_columns(int head_dim) { return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256; }

//| ## The problem, as a kernel sees it
//|
//| These kernels receive tensors as tensor maps, which contain sizes and strides, so a kernel loads rows and
//| never computes an address. It needs only the numbers that determine which query sees which key.

/// A query head and its batch entry.
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
  float scale_log2;   ///< scale * log2(e): exp(scale * s) is 2^(scale_log2 * s), and 2^x is one instruction
  Strides o_strides;  ///< strides of O, for stores without a tensor map
  int head_dim;       ///< columns of O; tiles may be wider

  //| Where a block or a row of the log-sum-exp needs a single number, heads are numbered over batch and heads
  //| together. With grouped queries, several query heads share a key head.
  /// Returns the head's number over batch and heads together, which selects its part of the log-sum-exp.
  __device__ int number(Head q) const { return q.batch * heads + q.head; }

  /// Returns the query head with that number.
  __device__ Head head_of(int number) const { return {number % heads, number / heads}; }

  /// Returns the key head that serves a query head.
  __device__ Head kv_head(Head q) const { return {q.head / group, q.batch}; }

  /// Returns the distance in elements from the start of O to row `query` of a head.
  __device__ int64_t o_offset(Head q, int query) const {
    return q.batch * o_strides.batch + q.head * o_strides.head + query * o_strides.row;
  }

  /// Returns the number of tiles of `rows` queries in a head.
  __host__ __device__ int query_tiles(int rows) const { return ceil_div(seqlen_q, rows); }

  //| Both masks reduce to one number: the last key that a query sees. The causal diagonal is aligned to the
  //| bottom right, so with more keys than queries even the first query sees several keys, and with fewer it
  //| may see none. Everything else follows from this function: how many tiles of keys a tile of queries
  //| needs, and which of them the mask cuts.
  /// Returns the last key that `query` sees; negative if it sees none. Rows past the end see the same keys as
  /// the last row.
  __device__ int last_key(int query) const {
    return causal ? min(query + seqlen_k - seqlen_q, seqlen_k - 1) : seqlen_k - 1;
  }

  /// Returns the number of tiles of `keys` keys that the queries up to `last_query` see. At least one: a tile
  /// of queries that see no key is multiplied with one tile of keys, which the mask turns into zeros.
  __device__ int key_tiles(int last_query, int keys) const { return max(last_key(last_query), 0) / keys + 1; }
};

}  // namespace flashbook::hopper
