/// Returns the number of tiles of keys per part: the length whose waves finish first; on a tie the largest,
/// which makes the fewest parts. `key_tiles` has the number of tiles of keys of each sequence, at least one
/// sequence; `heads` is the number of key heads, and `places` the number of blocks that run at once. The
/// length is at least 1 and at most that of the longest sequence, and no sequence has more than kMaxParts
/// parts.
inline int tiles_of_part(const std::vector<int>& key_tiles, int heads, int places) {
  const int longest = std::max(*std::max_element(key_tiles.begin(), key_tiles.end()), 1);
  int best = longest;
  int64_t best_time = INT64_MAX;
  for (int length = longest; length >= (longest + kMaxParts - 1) / kMaxParts; --length) {
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
