/// \file
/// Exercise ch09-skip: a test that skips too much.
#pragma once
#include "common/attention/visibility.h"
#include "common/device/kernel.h"

namespace flashbook::masks {

// FlashMask with one interval per key: queries `begin` to `end` - 1 do not see it. For a tile of keys the
// smallest and the largest of both bounds are known.

/// Queries that do not see a key.
struct HiddenFrom {
  int begin, end;  ///< the end is not included
};

// BEGIN EXERCISE ch09-skip: one row too many
/// Returns the class of a tile, for queries first_query to last_query.
__device__ inline TileClass classify_hidden(const HiddenFrom& least, const HiddenFrom& largest,
                                            int first_query, int last_query) {
  if (largest.begin <= first_query && least.end >= last_query) return TileClass::skip;
  if (least.begin > last_query || largest.end <= first_query) return TileClass::full;
  return TileClass::partial;
}
// END EXERCISE ch09-skip

}  // namespace flashbook::masks
