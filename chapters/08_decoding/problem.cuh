//| # The problem: few queries, many keys
//|
//| A model that generates text has one new token per sequence, and its query attends to every key of the
//| cache. So a head's score matrix has very many columns but only one row, or a few if tokens are drafted
//| ahead.
//|
//| ## Rows of a tile
//|
//| With grouped queries several query heads read the same key head. The products are the same whether a
//| tile's rows are queries of one head or heads of one query. So a tile's rows are *packed* (FlashAttention's
//| `pack_gqa`): `pack` query heads of the first query, then the same heads of the second, and so on. Step 1
//| packs a single head, later steps the whole group.
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

/// Query heads that share a tile, and the key head that they read.
struct Pack {
  int first_head;  ///< first query head
  int kv_head;     ///< key head that the pack reads
  int batch;
};

//| ## Numbers of packs and rows
//|
//| Packs are numbered, and so are the rows of each pack. The host prepares each divisor known at launch, such
//| as the heads per group, as a `Divisor`, which turns divisions into multiplications.
/// The shape of one launch.
struct Problem {
  int seqlen_q;           ///< queries per head
  int seqlen_k;           ///< keys per sequence, unless it has its own length
  int batch, heads;       ///< sequences, and query heads per sequence
  device::Divisor pack;   ///< query heads that are rows of one tile: 1, or the group
  device::Divisor packs;  ///< packs per sequence: heads / pack
  device::Divisor group;  ///< query heads that share one key head
  bool causal;            ///< aligned to the bottom right: the last query sees every key of its sequence
  float scale_log2;       ///< scale * log2(e): exp(scale * s) is 2^(scale_log2 * s)
  const int* lengths;     ///< [batch], keys that each sequence has; null: all have seqlen_k
  Strides q_strides, o_strides;
  Strides number_strides;  ///< strides that turn a row of O into its number

  //| Sequences of a batch end at different keys, and the causal mask is aligned to each sequence's own last
  //| key: of several queries the last sees all keys, the one before it all but the last.
  /// Pack number `index`, over batch and packs together.
  __device__ Pack pack_of(int index) const {
    const int first_head = index % packs * pack;
    return {first_head, first_head / group, index / packs};
  }

  /// Returns how many rows a pack has.
  __host__ __device__ int rows() const { return pack * seqlen_q; }

  /// Returns how many rows O has.
  __host__ __device__ int64_t all_rows() const { return int64_t(batch) * heads * seqlen_q; }

  /// Returns how many keys the sequence has; may be 0.
  __device__ int length(int batch) const { return lengths == nullptr ? seqlen_k : lengths[batch]; }

  /// Returns the last key that a row sees; negative if none. Rows past the end see what the last row sees.
  __device__ int last_key(int length, int row) const {
    return causal ? min(length - seqlen_q + row / pack, length - 1) : length - 1;
  }

  //| A row's number determines where its query is read and its result is written. `number` counts rows of O
  //| in the order of the log-sum-exp, which step 3's partial results share.
  /// Returns which row of O, over batch, heads and queries together.
  __device__ int64_t number(const Pack& of, int row) const { return offset(number_strides, of, row); }

  /// Returns the offset in elements of a row of Q or O.
  __device__ int64_t offset(const Strides& strides, const Pack& of, int row) const {
    return of.batch * strides.batch + (of.first_head + row % pack) * strides.head + row / pack * strides.row;
  }
};

}  // namespace flashbook::decoding
