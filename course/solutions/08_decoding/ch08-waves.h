/// Returns how full the waves of `blocks` blocks are, from 0 to 1, if `places` blocks run at once.
inline double fullness(int64_t blocks, int places) {
  const double waves = double(blocks) / places;
  return waves / std::ceil(waves);
}

/// Returns the number of parts into which the keys are split, 1 to `key_tiles`. Unsplit, there are `tiles`
/// blocks.
inline int parts_by_fullness(int64_t tiles, int key_tiles, int places) {
  double best = 0;
  for (int parts = 1; parts <= key_tiles; ++parts) best = std::max(best, fullness(tiles * parts, places));
  int parts = 1;
  while (parts < key_tiles && fullness(tiles * parts, places) < 0.85 * best) ++parts;
  return parts;
}
