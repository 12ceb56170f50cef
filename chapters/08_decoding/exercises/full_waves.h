/// \file
/// Exercise ch08-waves: a heuristic that never splits.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace flashbook::decoding {

// FlashAttention-3's rule for the number of parts looks at how full the waves of blocks are: with 132 blocks
// at once, 396 blocks are three full waves, and 298 blocks are 2.26 waves that take as long as three, 75 %
// full. It takes the smallest number of parts whose waves are at least 85 % as full as those of the best.

// BEGIN EXERCISE ch08-waves: a heuristic that never splits
/// Returns how full the waves of `blocks` blocks are, 0 to 1, where `places` run at once.
inline double fullness(int64_t blocks, int places) {
  const double waves = blocks / places;
  return waves / std::ceil(waves);
}

/// Into how many parts the keys are split: 1 to `key_tiles`. Without splitting, `tiles` blocks are needed.
inline int parts_by_fullness(int64_t tiles, int key_tiles, int places) {
  double best = 0;
  for (int parts = 1; parts <= key_tiles; ++parts) best = std::max(best, fullness(tiles * parts, places));
  int parts = 1;
  while (parts < key_tiles && fullness(tiles * parts, places) < 0.85 * best) ++parts;
  return parts;
}
// END EXERCISE ch08-waves

}  // namespace flashbook::decoding
