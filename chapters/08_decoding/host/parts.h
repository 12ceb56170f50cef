//| # Into how many parts
//|
//| Step 3 splits the keys of every sequence into the same number of parts. Too few leave multiprocessors
//| idle. Too many make parts so short that their start, and the merge of what they found, take longer than
//| their keys. In between the blocks run in *waves*: with 264 blocks at once, 265 blocks take as long as 528.
#pragma once
#include <algorithm>
#include <cstdint>

#include "common/numeric/arithmetic.h"

namespace flashbook::decoding {

/// What a block's start and end cost, in the time of a tile of keys: the first tile's way through memory, and
/// a partial result that is written and merged. An estimate.
constexpr int kOverheadTiles = 2;

constexpr int kMostParts = 128;

//| ## The model
//|
//| `tiles` blocks would do without a split. With $p$ parts there are $p$ times as many, in
//| $\lceil p \cdot \text{tiles} / \text{places} \rceil$ waves, and a wave takes as long as a part's tiles of
//| keys and the overhead. The product of both is the time; the count with the smallest is taken.
//| FlashAttention-3 looks at how full the last wave is instead, and takes the smallest count that is within
//| 85 % of the fullest. It needs no estimate of the overhead, and may take many short parts.
/// Into how many parts the keys are split where all sequences have the same length. `tiles` blocks are needed
/// without: tiles of rows, of all sequences and key heads. `key_tiles` are a sequence's tiles of keys,
/// `places` the blocks that the machine runs at once. At most kMostParts, at most one a tile of keys.
/// Of counts that take as long the smallest, which has the fewest partial results.
inline int parts_for(int64_t tiles, int key_tiles, int places) {
  int best = 1;
  int64_t best_time = INT64_MAX;
  for (int parts = 1; parts <= std::clamp(key_tiles, 1, kMostParts); ++parts) {
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
