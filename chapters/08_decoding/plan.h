/// \file
/// The host's plan: which block reads which keys.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace flashbook::decoding {

/// What a block's start and end cost, in the time of a tile of keys: the first tile's way through memory, and
/// a partial result that is written and merged.
constexpr int kOverheadTiles = 2;

constexpr int kMostParts = 128;

// BEGIN SOLUTION ch08-parts
/// Into how many parts the keys are split where all sequences have the same length. `tiles` blocks are needed
/// without: tiles of rows, of all sequences and key heads. `key_tiles` are a sequence's tiles of keys,
/// `slots` the blocks that the machine runs at once. At most kMostParts, at most one a tile of keys.
///
/// With p parts there are ceil(tiles * p / slots) waves of blocks, and a block takes as long as its tiles and
/// the overhead. The smallest product wins; of equal ones the fewest parts, which have the fewest partials.
inline int parts_for(int64_t tiles, int key_tiles, int slots) {
  int best = 1;
  int64_t best_time = INT64_MAX;
  for (int parts = 1; parts <= std::clamp(key_tiles, 1, kMostParts); ++parts) {
    const int64_t waves = (tiles * parts + slots - 1) / slots;
    const int64_t time = waves * ((key_tiles + parts - 1) / parts + kOverheadTiles);
    if (time < best_time) {
      best = parts;
      best_time = time;
    }
  }
  return best;
}
//~ /// Into how many parts the keys are split where all sequences have the same length. `tiles` blocks are needed
//~ /// without: tiles of rows, of all sequences and key heads. `key_tiles` are a sequence's tiles of keys, `slots`
//~ /// the blocks that the machine runs at once. At most kMostParts, at most one a tile of keys.
//~ inline int parts_for(int64_t tiles, int key_tiles, int slots) {
//~   return tiles + key_tiles + slots > 0 ? 1 : 0;  // TODO: the count whose blocks are done first
//~ }
// END SOLUTION ch08-parts

/// Keys of one sequence for one key head, which a block reads in one go.
struct Chunk {
  int batch;
  int kv_head;
  int first_key;  ///< a multiple of the tile
  int keys;       ///< 0: a sequence without keys, of which O = 0 and -inf must be written
  int partial;    ///< where partial O and log-sum-exp go; -1: these are all keys, the block writes O itself
};

/// Chunks for blocks, so that all blocks take about as long.
struct Plan {
  std::vector<Chunk> chunks;  ///< block 0's, block 1's, ...; of a row, ascending
  std::vector<int>
      first_chunk;  ///< [blocks + 1]: block b has chunks first_chunk[b] ... first_chunk[b + 1] - 1
  std::vector<int> first_partial;  ///< [batch * kv_heads + 1]: partials of row batch * kv_heads + kv_head

  int partials() const { return first_partial.back(); }
};

/// Deals the tiles of all (sequence, key head) pairs out to `blocks` blocks in one pass. A block takes tiles
/// until its payload is used up; what is left of the pair goes to the next block. Each chunk costs its tiles
/// and kOverheadTiles. The payload is the smallest with which the blocks suffice, found by bisection.
///
/// `lengths`: keys of each sequence, 0 among them. `tile`: keys of a tile. All counts are at least 1.
inline Plan make_plan(std::span<const int> lengths, int kv_heads, int tile, int blocks) {
  const auto deal = [&](int64_t payload, auto&& take) {  // returns how many blocks it takes
    int block = 0;
    int64_t room = payload;
    for (int batch = 0; batch < int(lengths.size()); ++batch)
      for (int head = 0; head < kv_heads; ++head) {
        const int tiles = (lengths[batch] + tile - 1) / tile;
        int done = 0;
        do {
          // A chunk has a tile at least, unless there is none.
          if (room < payload && room < kOverheadTiles + std::min(tiles - done, 1)) {
            ++block;
            room = payload;
          }
          const int count = int(std::min<int64_t>(tiles - done, room - kOverheadTiles));
          take(block, batch, head, done, count);
          room -= count + kOverheadTiles;
          done += count;
        } while (done < tiles);
      }
    return block + 1;
  };

  int64_t low = kOverheadTiles + 1, high = low;  // with `high` the blocks suffice
  for (int length : lengths) high += int64_t(kv_heads) * ((length + tile - 1) / tile + kOverheadTiles);
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (deal(middle, [](auto...) {}) <= blocks)
      high = middle;
    else
      low = middle + 1;
  }

  Plan plan;
  plan.first_chunk.assign(1, 0);
  deal(high, [&](int block, int batch, int head, int first, int count) {
    plan.first_chunk.resize(block + 1, int(plan.chunks.size()));
    const int keys = std::min(count * tile, lengths[batch] - first * tile);
    plan.chunks.push_back({batch, head, first * tile, keys, 0});
  });
  plan.first_chunk.resize(blocks + 1, int(plan.chunks.size()));

  plan.first_partial.assign(1, 0);
  for (std::size_t begin = 0, end; begin < plan.chunks.size(); begin = end) {
    const Chunk& row = plan.chunks[begin];
    for (end = begin; end < plan.chunks.size(); ++end)
      if (plan.chunks[end].batch != row.batch || plan.chunks[end].kv_head != row.kv_head) break;
    const int partial = plan.first_partial.back(), count = int(end - begin);
    for (int i = 0; i < count; ++i) plan.chunks[begin + i].partial = count > 1 ? partial + i : -1;
    plan.first_partial.push_back(partial + (count > 1 ? count : 0));
  }
  return plan;
}

}  // namespace flashbook::decoding
