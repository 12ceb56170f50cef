/// \file
/// Exercise ch09-tiles: how many tiles a mask leaves, from paper and pencil.
#pragma once
#include <algorithm>
#include <cstdint>

namespace flashbook::masks {

// n queries and n keys, in tiles of 128 queries by 128 keys. All masks here are causal: query i sees keys up
// to i. n need not be a multiple of 128. Write formulas or loops, as you like.

constexpr int64_t kTile = 128;

// BEGIN SOLUTION ch09-tiles
constexpr int64_t rows_of_tiles(int64_t n) { return (n + kTile - 1) / kTile; }

// Row r of tiles has tiles 0 to r.
constexpr int64_t causal_tiles(int64_t n) { return rows_of_tiles(n) * (rows_of_tiles(n) + 1) / 2; }
// Those on the diagonal.
constexpr int64_t causal_partial_tiles(int64_t n) { return rows_of_tiles(n); }
// Its first query sees furthest to the left.
constexpr int64_t window_tiles(int64_t n, int64_t window) {
  int64_t tiles = 0;
  for (int64_t row = 0; row < rows_of_tiles(n); ++row)
    tiles += row - std::max<int64_t>(row * kTile - window, 0) / kTile + 1;
  return tiles;
}
// Full from the first tile that begins where the last query's window does or later, up to the one before the
// diagonal.
constexpr int64_t window_full_tiles(int64_t n, int64_t window) {
  int64_t tiles = 0;
  for (int64_t row = 0; row < rows_of_tiles(n); ++row) {
    const int64_t last_query = std::min(row * kTile + kTile, n) - 1;
    const int64_t first = (std::max<int64_t>(last_query - window, 0) + kTile - 1) / kTile;
    tiles += std::max<int64_t>(row - first, 0);
  }
  return tiles;
}
// Each has tiles of its own.
constexpr int64_t packed_tiles(int64_t documents, int64_t length) { return documents * causal_tiles(length); }
// From the tile in which the first query's document begins.
constexpr int64_t document_tiles(int64_t documents, int64_t length) {
  int64_t tiles = 0;
  for (int64_t row = 0; row < rows_of_tiles(documents * length); ++row)
    tiles += row - row * kTile / length * length / kTile + 1;
  return tiles;
}
// 1 + 2 + ... up to the window, and then w + 1 for each query.
constexpr double visible_share(int64_t n, int64_t window) {
  const int64_t rising = std::min(n, window + 1);
  const double pairs = double(rising) * double(rising + 1) / 2 + double(n - rising) * double(window + 1);
  return pairs / double(window_tiles(n, window) * kTile * kTile);
}
//~ // Tiles that are not skipped under a causal mask.
//~ constexpr int64_t causal_tiles(int64_t n) { return n * 0; }
//~ // Those of them that need the mask.
//~ constexpr int64_t causal_partial_tiles(int64_t n) { return n * 0; }
//~ // Tiles that are not skipped if a query sees its own key and `window` keys before it.
//~ constexpr int64_t window_tiles(int64_t n, int64_t window) { return n * window * 0; }
//~ // Those of them that need no mask.
//~ constexpr int64_t window_full_tiles(int64_t n, int64_t window) { return n * window * 0; }
//~ // Documents of `length` tokens each, as packed sequences (step 2): tiles that are not skipped.
//~ constexpr int64_t packed_tiles(int64_t documents, int64_t length) { return documents * length * 0; }
//~ // The same documents as a mask (step 3), where tiles lie on the grid of all queries and keys.
//~ constexpr int64_t document_tiles(int64_t documents, int64_t length) { return documents * length * 0; }
//~ // Visible pairs as a part of the pairs of tiles that are not skipped, under a window.
//~ constexpr double visible_share(int64_t n, int64_t window) { return double(n * window * 0); }
// END SOLUTION ch09-tiles

}  // namespace flashbook::masks
