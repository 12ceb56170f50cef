/// \file
/// Exercise ch08-parts: the length of a part when sequences have different lengths.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "chapters/08_decoding/host/parts.h"

namespace flashbook::decoding {

// Step 3 cuts every sequence into the same number of parts. If one sequence is long and the others short,
// that number is too small for the long one or too large for the others. FlashInfer fixes the *length* of a
// part instead: a sequence has as many parts as it needs, the last of which may be shorter. A sequence
// without keys has one part, so that some block writes its zeros.
//
// The cost model is that of waves. Parts of `length` tiles of keys make as many blocks as all sequences have
// parts, times `heads`. The blocks run in waves of `places`, and a wave takes length + kOverheadTiles.

// BEGIN EXERCISE ch08-parts: how long a part is
/// Returns how many tiles of keys a part has: the length whose waves finish first; on a tie the largest,
/// which has the fewest parts. `key_tiles` are the tiles of keys of each sequence, at least one sequence;
/// `heads` the key heads of each; `places` the blocks that the machine runs at once. At most as long as the
/// longest sequence, at least 1, and no sequence has more than kMaxParts parts.
inline int tiles_of_part(const std::vector<int>& key_tiles, int heads, int places) {
  // TODO: the length whose waves finish first; so far, no sequence is cut
  const int longest = *std::max_element(key_tiles.begin(), key_tiles.end());
  return heads + places > 0 ? std::max(longest, 1) : 0;
}
// END EXERCISE ch08-parts

}  // namespace flashbook::decoding
