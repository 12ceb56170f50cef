//| # The number of parts
//|
//| Step 3 splits the keys of every sequence into the same number of parts. With too few, multiprocessors
//| idle. With too many, starting a part and merging its result take longer than its keys. In between the
//| blocks run in *waves*: with 264 blocks at once, 265 blocks take as long as 528.
#pragma once
#include <algorithm>
#include <cstdint>

#include "common/numeric/arithmetic.h"

namespace flashbook::decoding {

/// The cost of a block's start and end, in tiles of keys: loading the first tile, and writing and merging a
/// partial result. This is an estimate.
constexpr int kOverheadTiles = 2;

constexpr int kMaxParts = 128;

//| ## The model
//|
//| Without a split there are `tiles` blocks. With $p$ parts there are $p$ times as many, in
//| $\lceil p \cdot \text{tiles} / \text{places} \rceil$ waves, each as long as a part's tiles of keys plus
//| the overhead. The count with the smallest product wins. FlashAttention-3 instead looks at how full the
//| last wave is, and takes the smallest count within 85 % of the fullest. That needs no estimate of the
//| overhead, but may make many short parts.
/// Returns the number of parts if all sequences have the same length. `tiles`: blocks without a split, over
/// the tiles of rows of all sequences and key heads. `key_tiles`: a sequence's tiles of keys. `places`:
/// blocks that the GPU runs at once. At most kMaxParts, and at most one part per tile of keys. On a tie,
/// returns the smallest number.
inline int parts_for(int64_t tiles, int key_tiles, int places) {
  int best = 1;
  int64_t best_time = INT64_MAX;
  for (int parts = 1; parts <= std::clamp(key_tiles, 1, kMaxParts); ++parts) {
    const int64_t waves = ceil_div(tiles * parts, places);
    const int64_t time = waves * (ceil_div(key_tiles, parts) + kOverheadTiles);
    if (time < best_time) {
      best = parts;
      best_time = time;
    }
  }
  return best;
}

}  // namespace flashbook::decoding
