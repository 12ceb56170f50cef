/// \file
/// Exercise ch03-bytes: the memory and traffic of chapter 3's tiles, with paper and pencil.
#pragma once
#include <algorithm>
#include <cmath>

namespace flashbook::fa1 {

// The problem: batch 1; query heads that share fewer heads of keys and values; as many keys as queries; no
// mask; f16, so 2 bytes per element of Q, K, V and O, and 4 per number of an unfinished O, m, l, scores.
// Tiles of queries and of keys have `rows` rows, which divide the tokens. Each function is a formula in these
// sizes. `try` calls it with the sizes below and with others, and the grader with unpublished sizes. Sizes
// are double, so a quotient keeps its fraction; std::floor and std::ceil round it. Functions may call those
// above them. Counts are exact: an error of a thousandth is wrong.
struct Bytes {
  double heads = 32, kv_heads = 8, tokens = 2048, head_dim = 64, rows = 64;

  // BEGIN EXERCISE ch03-bytes: tiles on paper
  // Shared memory of a block in steps 1 and 2, in bytes. Leave out the padding.
  double tile_bytes() const { return 0; }
  // The largest tile, in rows, a multiple of 16, that needs at most 227 KB (1 KB is 1024 bytes).
  double largest_tile() const { return 0; }
  // From here on, count all heads together. Bytes that step 1 requests.
  double step1_bytes() const { return 0; }
  // Bytes that step 2 requests.
  double step2_bytes() const { return 0; }
  // Bytes of device memory that step 1 needs beyond inputs and outputs.
  double step1_memory() const { return 0; }
  // Bytes of device memory that chapter 1 needs, for S and P.
  double chapter1_memory() const { return 0; }
  // END EXERCISE ch03-bytes
};

}  // namespace flashbook::fa1
