//| # Step 1: a mask from memory
//|
//| A byte for each pair of a query and a key tells whether the query sees the key, so any mask is possible.
//| The kernel knows nothing about the mask beforehand, so it treats every tile of keys as partial: it loads
//| it, multiplies it, and checks every pair. And each head reads N^2 bytes of mask.
//|
//| ![Four masks in tiles: most tiles are skipped, some are full, and those where a mask cuts are
//| partial](../../docs/figures/mask_tiles.svg)
#pragma once
#include "chapters/09_masks/step3_ranges.cuh"

namespace flashbook::masks {

//| A thread reads two neighbouring bytes of a row for every 8 keys. The four lanes of a quad read 8 bytes
//| together, and the next row is N bytes away. So one warp-level load touches eight cache lines for 32 bytes.
/// The visible keys of a query, from its row of the mask.
struct PairsOfRow {
  const unsigned char* pair;  // [keys]
  int keys;

  __device__ bool sees(int key) const { return key < keys && pair[key] != 0; }
};

/// Every tile of keys is partial.
struct AllTiles {
  Span span;

  __device__ TileClass classify(int) const { return TileClass::partial; }
};

//| If each head has its own mask, 65 heads of 8192 tokens take more than 2^32 bytes, so offsets have 64 bits.
/// Step 1.
struct ByPairs : InBatch {
  static constexpr Extras kExtras = {};
  const unsigned char* visible;  // [batch, heads_of_mask, seqlen_q, seqlen_k]
  int heads_of_mask;             ///< 1, or the number of heads
  Unchanged score;

  template <int kKeys>
  __device__ AllTiles tiles(const Work& work, int) const {
    return {{0, 0, (work.sequence.keys + kKeys - 1) / kKeys}};
  }
  __device__ PairsOfRow row(const Work& work, int query) const {
    const int64_t head = int64_t(work.head.batch) * heads_of_mask + (heads_of_mask == 1 ? 0 : work.head.head);
    const Sequence& s = work.sequence;
    return {visible + (head * s.queries + query) * s.keys, s.keys};
  }
};

}  // namespace flashbook::masks
