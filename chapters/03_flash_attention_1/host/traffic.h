//| # Bytes, on paper
//|
//| This file counts the bytes that the kernels of this chapter request: the paper's IO complexity with its
//| constants. Each formula follows the loops of a kernel, tile by tile, so it is exact if tiles divide the
//| lengths, with or without a causal mask.
//|
//| Requesting bytes is not the same as moving them through device memory. K and V of the heads that run
//| at the same time are a few megabytes. They stay in the L2, where all blocks but the first find them.
//| Steps 2 and 3 move only the compulsory bytes through device memory. The unfinished $O$ of step 1 is
//| written, and read back only after all the other tiles of queries. For 64 heads at a time, it does not
//| fit in the L2.
#pragma once
#include <algorithm>

#include "common/attention/cost.h"
#include "common/attention/spec.h"

namespace flashbook::fa1 {

/// Returns how many tiles of `rows` rows `count` rows make.
constexpr int tiles_of(int count, int rows) { return (count - 1) / rows + 1; }

/// Calls body(queries, visible) for each tile of queries of one head: its rows, and the keys they see.
template <typename Body>
void for_each_query_tile(const Spec& spec, int rows_q, Body body) {
  for (int64_t first = 0; first < spec.seqlen_q; first += rows_q) {
    const int queries = int(std::min<int64_t>(rows_q, spec.seqlen_q - first));
    body(queries, spec.visible_keys(int(first + queries - 1)));
  }
}

//| ## The cost of a number
//|
//| A request moves *sectors* of 32 bytes. Rows of Q, K, V and O consist of whole sectors. The maximum, the
//| sum and the log-sum-exp of a row do not. A warp of steps 1 and 2 has two rows at a time, so it requests a
//| sector where it needs 8 bytes; a warp of step 3 has one row. In device memory, each number is still only 4
//| bytes, since neighbours share a sector.

/// Bytes that a warp requests per row for its maximum, sum or log-sum-exp in steps 1 and 2.
constexpr double kRequestedNumber = 16;
/// The same in step 3, where a warp writes a row at a time: a sector.
constexpr double kRequestedRow = 32;

/// Returns the bytes that step 1 requests: K and V once, and for each tile of keys all of Q, O, m and l that
/// see it. `number` is the bytes of one of a row's numbers.
inline double bytes_keys_outside(const Spec& spec, int block, double number = sizeof(float)) {
  const double element = double(size_of(spec.dtype)), heads = double(spec.batch) * spec.heads;
  double q_rows = 0, state_rows = 0;
  for_each_query_tile(spec, block, [&](int queries, int visible) {
    const int key_tiles = std::max(1, tiles_of(visible, block));  // the first one even if no key is visible
    q_rows += double(queries) * key_tiles;
    state_rows +=
        2.0 * queries * (key_tiles - 1);  // stored by all but the last, fetched by all but the first
  });
  const double k_rows = 2.0 * spec.seqlen_k, o_rows = spec.seqlen_q;
  return heads * (element * spec.head_dim * (q_rows + k_rows + o_rows) +
                  (sizeof(float) * spec.head_dim + 2 * number) * state_rows + number * o_rows);
}

/// Returns the bytes that steps 2 and 3 request: Q, O and the log-sum-exp once, K and V for each tile of
/// queries as far as it sees them. `number` is as above.
inline double bytes_queries_outside(const Spec& spec, int rows_q, int rows_k, double number = sizeof(float)) {
  const double element = double(size_of(spec.dtype)), heads = double(spec.batch) * spec.heads;
  double k_rows = 0;
  for_each_query_tile(spec, rows_q, [&](int, int visible) {
    if (visible > 0) k_rows += 2.0 * std::min(tiles_of(visible, rows_k) * rows_k, spec.seqlen_k);
  });
  const double rows = spec.seqlen_q;
  return heads * (element * spec.head_dim * (2 * rows + k_rows) + number * rows);
}

}  // namespace flashbook::fa1
