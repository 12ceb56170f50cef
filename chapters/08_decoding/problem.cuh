//| # The problem: few queries, many keys
//|
//| A model that writes has one new token a sequence. Its query meets every key of the cache, so a head's
//| score matrix has one row, or a few when tokens are guessed ahead and checked together. What is long is the
//| cache.
//|
//| ## Rows of a tile
//|
//| With grouped queries several query heads read the same key head. To the keys it does not matter whether
//| rows of a tile are queries of one head or heads of one query. So a tile's rows are *packed*
//| (FlashAttention's `pack_gqa`): `pack` query heads, one after another, of the first query, then the same
//| heads of the second. Step 1 packs a single head, later steps the whole group.
//|
//| ![Without packing four blocks read the same keys, each for one row of its tile; packed, one block reads
//| them for four rows](../../docs/figures/pack_gqa.svg)
#pragma once
#include "common/attention/layout.h"
#include "common/device/divisor.h"
#include "common/device/kernel.h"
#include "common/hopper/softmax.h"

namespace flashbook::decoding {

using namespace hopper;  // what all Hopper chapters share; `Problem` and some more are this chapter's own

/// Query heads that share a tile, and where their keys lie.
struct Pack {
  int first_head;  ///< of the query heads
  int kv_head;     ///< that they read
  int batch;
};

//| ## What a block must know
//|
//| A group of heads has a number, and so has every row of it. Divisions by what only the launch knows, such
//| as the heads of a group, are multiplications by a `Divisor` that the host has prepared.
/// The shape of one launch.
struct Problem {
  int seqlen_q;           ///< queries of a head
  int seqlen_k;           ///< keys of a sequence, unless it has a length of its own
  int batch, heads;       ///< sequences, and query heads of each
  device::Divisor pack;   ///< query heads that are rows of one tile: 1, or the group
  device::Divisor packs;  ///< of a sequence: heads / pack
  device::Divisor group;  ///< query heads that share one key head
  bool causal;            ///< aligned to the bottom right: the last query sees every key of its sequence
  float scale_log2;       ///< scale * log2(e): exp(scale * s) is 2^(scale_log2 * s)
  const int* lengths;     ///< [batch], keys that each sequence has; null: all have seqlen_k
  Strides q_strides, o_strides;
  Strides number_strides;  ///< of the rows of O as they are counted

  //| Sequences of a batch end at different keys. The causal mask is aligned to each sequence's own last key:
  //| with several queries the last one sees all keys, the one before it all but the last.
  /// Pack number `index`, over batch and packs together.
  __device__ Pack pack_of(int index) const {
    const int first_head = index % packs * pack;
    return {first_head, first_head / group, index / packs};
  }

  /// How many rows a pack has.
  __host__ __device__ int rows() const { return pack * seqlen_q; }

  /// How many rows O has.
  __host__ __device__ int64_t all_rows() const { return int64_t(batch) * heads * seqlen_q; }

  /// How many keys the sequence has; may be 0.
  __device__ int length(int batch) const { return lengths == nullptr ? seqlen_k : lengths[batch]; }

  /// The last key that a row sees; negative if it sees none. Rows beyond the end see what the last one does.
  __device__ int last_key(int length, int row) const {
    return causal ? min(length - seqlen_q + row / pack, length - 1) : length - 1;
  }

  //| A row's number decides where its query is read and its result is written. `number` counts rows of O as
  //| the log-sum-exp lies in memory, and the partial results of step 3 too.
  /// Which row of O, over batch, heads and queries together.
  __device__ int64_t number(const Pack& of, int row) const { return offset(number_strides, of, row); }

  /// How many elements lie before a row of Q or O.
  __device__ int64_t offset(const Strides& strides, const Pack& of, int row) const {
    return of.batch * strides.batch + (of.first_head + row % pack) * strides.head + row / pack * strides.row;
  }
};

}  // namespace flashbook::decoding
