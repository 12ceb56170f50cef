/// \file
/// Exercise ch09-tiles: how many tiles a mask leaves, from paper and pencil.
#pragma once
#include <algorithm>
#include <cmath>

namespace flashbook::masks {

// Queries and keys are cut into tiles of `tile` by `tile`. All masks here are causal: query i sees keys up to
// i. A tile is executed unless no query in it sees a key. Lengths need not be multiples of a tile; nothing
// past the last query counts.
//
// Each function is a formula of these sizes, or a loop. `try` checks it with the sizes below and others; the
// grader uses more. Sizes are double, so a quotient keeps its fraction; std::floor and std::ceil make it
// whole. Functions may call those above them.
struct Tiled {
  double n = 8192;                      // queries, and keys
  double window = 1024;                 // keys that a query sees before its own
  double documents = 8, length = 1024;  // documents, and tokens per document
  double tile = 128;

  // BEGIN EXERCISE ch09-tiles: how many tiles
  // Tiles that are executed under a causal mask, and those of them that need the mask.
  double causal_tiles() const { return 0; }
  double causal_partial_tiles() const { return 0; }
  // Tiles that are executed if a query sees its own key and `window` before it, and those of them that need
  // no mask.
  double window_tiles() const { return 0; }
  double window_full_tiles() const { return 0; }
  // Documents of `length` tokens each, as packed sequences (step 2), and as a mask (step 3), where tiles lie
  // on the grid of all queries and keys: tiles that are executed.
  double varlen_tiles() const { return 0; }
  double document_tiles() const { return 0; }
  // Visible pairs under the window, as a part of the pairs of the tiles that are executed.
  double visible_share() const { return 0; }
  // END EXERCISE ch09-tiles
};

}  // namespace flashbook::masks
