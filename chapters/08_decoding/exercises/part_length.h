/// \file
/// Exercise ch08-parts: how long a part is where sequences end at different keys.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "chapters/08_decoding/host/parts.h"

namespace flashbook::decoding {

// Step 3 cuts every sequence into the same number of parts. With one long sequence among short ones that
// number is too small for the one or too large for the others. FlashInfer fixes the *length* of a part
// instead: a sequence has as many parts as it takes, the last of them may be shorter, and a sequence without
// keys has one, since somebody must write its zeros.
//
// The model is that of waves. Parts of `length` tiles of keys make as many blocks as all sequences have
// parts, times `heads`. The blocks run in waves of `places`, and a wave takes length + kOverheadTiles.

// BEGIN SOLUTION ch08-parts
/// How many tiles of keys a part has: the length whose waves are over first, of several that take as long the
/// largest, which has the fewest parts. `key_tiles` are the tiles of keys of each sequence, at least one
/// sequence; `heads` the key heads of each; `places` the blocks that the machine runs at once. At most as
/// long as the longest sequence, at least 1, and no sequence has more than kMostParts parts.
inline int tiles_of_part(const std::vector<int>& key_tiles, int heads, int places) {
  const int longest = std::max(*std::max_element(key_tiles.begin(), key_tiles.end()), 1);
  int best = longest;
  int64_t best_time = INT64_MAX;
  for (int length = longest; length >= (longest + kMostParts - 1) / kMostParts; --length) {
    int64_t blocks = 0;
    for (int tiles : key_tiles) blocks += heads * std::max((tiles + length - 1) / length, 1);
    const int64_t time = (blocks + places - 1) / places * (length + kOverheadTiles);
    if (time < best_time) {
      best = length;
      best_time = time;
    }
  }
  return best;
}
//~ /// How many tiles of keys a part has: the length whose waves are over first, of several that take as long the
//~ /// largest, which has the fewest parts. `key_tiles` are the tiles of keys of each sequence, at least one sequence;
//~ /// `heads` the key heads of each; `places` the blocks that the machine runs at once. At most as long as the
//~ /// longest sequence, at least 1, and no sequence has more than kMostParts parts.
//~ inline int tiles_of_part(const std::vector<int>& key_tiles, int heads, int places) {
//~   // TODO: the length whose waves are over first; so no sequence is cut
//~   const int longest = *std::max_element(key_tiles.begin(), key_tiles.end());
//~   return heads + places > 0 ? std::max(longest, 1) : 0;
//~ }
// END SOLUTION ch08-parts

}  // namespace flashbook::decoding
