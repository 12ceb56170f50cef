/// \file
/// Exercise ch09-classify: the class of a tile, where some queries see everything.
#pragma once
#include "common/attention/visibility.h"
#include "common/device/kernel.h"

namespace flashbook::masks {

// Longformer's mask (arXiv 2004.05150): a window to both sides, and the first tokens are *global*. All
// queries see a global key, and a global query sees all keys. So of two rows the upper one may see more on
// both sides: step 3's argument, that the first row and the last one decide for those between them, does not
// hold.

/// `tokens` queries and as many keys.
struct GlobalTokens {
  int tokens;
  int global;  ///< tokens 0 to global - 1 are global; 0: none is
  int window;  ///< query i sees keys i - window to i + window besides
};

/// The class of a tile: queries first_query to last_query, which exist, and keys first_key to last_key, of
/// which the first exists.
__device__ inline TileClass classify_global(const GlobalTokens& mask, int first_query, int last_query,
                                            int first_key, int last_key) {
  // BEGIN SOLUTION ch09-classify
  const bool is_global = first_query < mask.global || first_key < mask.global;
  const bool in_window = last_key >= first_query - mask.window && first_key <= last_query + mask.window;
  if (!is_global && !in_window) return TileClass::skip;
  // The pairs without a global token are a rectangle; its two corners off the diagonal are the furthest
  // apart.
  const int query = max(first_query, mask.global), key = max(first_key, mask.global);
  const bool is_none = query > last_query || key > last_key;
  const bool all = is_none || (last_key - query <= mask.window && last_query - key <= mask.window);
  return all && last_key < mask.tokens ? TileClass::full : TileClass::partial;
  //~ // TODO: skip, partial or full? This is right as long as everything is seen in part.
  //~ static_cast<void>(mask), static_cast<void>(first_query), static_cast<void>(last_query);
  //~ static_cast<void>(first_key), static_cast<void>(last_key);
  //~ return TileClass::partial;
  // END SOLUTION ch09-classify
}

}  // namespace flashbook::masks
