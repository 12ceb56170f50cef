#include "chapters/08_decoding/plan.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace flashbook::decoding {
namespace {

/// What a block's chunks cost, in tiles.
std::vector<int64_t> loads(const Plan& plan, int tile) {
  std::vector<int64_t> loads;
  for (std::size_t block = 0; block + 1 < plan.first_chunk.size(); ++block) {
    loads.push_back(0);
    for (int i = plan.first_chunk[block]; i < plan.first_chunk[block + 1]; ++i)
      loads.back() += (plan.chunks[i].keys + tile - 1) / tile + kOverheadTiles;
  }
  return loads;
}

/// Every key of every sequence and key head stands in one chunk, in order; partials are numbered row by row.
void expect_whole(const Plan& plan, const std::vector<int>& lengths, int kv_heads, int tile) {
  std::size_t i = 0;
  ASSERT_EQ(plan.first_partial.size(), lengths.size() * kv_heads + 1);
  for (int batch = 0; batch < int(lengths.size()); ++batch)
    for (int head = 0; head < kv_heads; ++head) {
      const int row = batch * kv_heads + head;
      const int partials = plan.first_partial[row + 1] - plan.first_partial[row];
      int key = 0, chunks = 0;
      do {
        ASSERT_LT(i, plan.chunks.size());
        const Chunk& chunk = plan.chunks[i++];
        ASSERT_EQ(chunk.batch, batch);
        ASSERT_EQ(chunk.kv_head, head);
        ASSERT_EQ(chunk.first_key, key);
        ASSERT_EQ(chunk.first_key % tile, 0);
        ASSERT_TRUE(chunk.keys > 0 || lengths[batch] == 0);
        ASSERT_EQ(chunk.partial, partials == 0 ? -1 : plan.first_partial[row] + chunks);
        key += chunk.keys;
        ++chunks;
      } while (key < lengths[batch]);
      ASSERT_EQ(key, lengths[batch]);
      ASSERT_EQ(partials, chunks > 1 ? chunks : 0);
    }
  ASSERT_EQ(i, plan.chunks.size());
  ASSERT_EQ(plan.first_chunk.front(), 0);
  ASSERT_EQ(plan.first_chunk.back(), int(plan.chunks.size()));
  ASSERT_TRUE(std::ranges::is_sorted(plan.first_chunk));
}

TEST(Plan, OneShortSequenceIsOneChunkThatWritesO) {
  const Plan plan = make_plan(std::vector<int>{3}, 1, 64, 132);
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_EQ(plan.chunks[0].keys, 3);
  EXPECT_EQ(plan.chunks[0].partial, -1);
  EXPECT_EQ(plan.partials(), 0);
}

TEST(Plan, ASequenceWithoutKeysHasAChunkThatSaysSo) {
  const Plan plan = make_plan(std::vector<int>{0, 5, 0}, 2, 64, 4);
  expect_whole(plan, {0, 5, 0}, 2, 64);
  EXPECT_EQ(plan.chunks.size(), 6u);
}

TEST(Plan, ALongSequenceAmongShortOnesIsSharedByTheBlocks) {
  std::vector<int> lengths(31, 1000);
  lengths.push_back(100000);
  const Plan plan = make_plan(lengths, 8, 64, 132);
  expect_whole(plan, lengths, 8, 64);
  const std::vector<int64_t> load = loads(plan, 64);
  const int64_t most = *std::ranges::max_element(load),
                sum = std::accumulate(load.begin(), load.end(), int64_t(0));
  EXPECT_LE(most, sum / 132 + 1 + kOverheadTiles);
}

TEST(Plan, RandomLengthsAreWholeAndBalanced) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const int kv_heads = 1 + int(random() % 4), blocks = 1 + int(random() % 140), tile = 16 << random() % 4;
    std::vector<int> lengths(1 + random() % 20);
    for (int& length : lengths) length = int(random() % (random() % 8 == 0 ? 50000 : 300));
    SCOPED_TRACE("round " + std::to_string(round));
    const Plan plan = make_plan(lengths, kv_heads, tile, blocks);
    expect_whole(plan, lengths, kv_heads, tile);
    if (HasFatalFailure()) return;

    // No plan is below the mean; a cut costs a block one overhead more, and a block may end with room for no
    // chunk.
    int64_t work = 0;
    for (int length : lengths) work += int64_t(kv_heads) * ((length + tile - 1) / tile + kOverheadTiles);
    const std::vector<int64_t> load = loads(plan, tile);
    ASSERT_EQ(load.size(), std::size_t(blocks));
    EXPECT_LE(*std::ranges::max_element(load), (work + blocks - 1) / blocks + 2 * kOverheadTiles);
  }
}

/// The time of the heuristic's model, by its definition.
double time_of(int64_t tiles, int key_tiles, int slots, int parts) {
  return std::ceil(double(tiles * parts) / slots) * (std::ceil(double(key_tiles) / parts) + kOverheadTiles);
}

TEST(Parts, NoOtherCountIsFaster) {
  for (int64_t tiles : {1, 2, 8, 16, 100, 131, 132, 133, 200, 512, 4096})
    for (int key_tiles : {1, 2, 3, 8, 64, 100, 1000, 16384})
      for (int slots : {3, 108, 132, 264}) {
        const int parts = parts_for(tiles, key_tiles, slots);
        EXPECT_GE(parts, 1);
        EXPECT_LE(parts, std::min(key_tiles, kMostParts));
        for (int other = 1; other <= std::min(key_tiles, kMostParts); ++other) {
          const double ours = time_of(tiles, key_tiles, slots, parts);
          const double theirs = time_of(tiles, key_tiles, slots, other);
          EXPECT_TRUE(ours < theirs || (ours == theirs && parts <= other))
              << tiles << " tiles, " << key_tiles << " of keys, " << slots << " slots: " << parts
              << " parts, not " << other;
        }
      }
}

TEST(Parts, AFullMachineNeedsOne) { EXPECT_EQ(parts_for(132, 1000, 132), 1); }
TEST(Parts, OneSequenceFillsTheMachine) { EXPECT_EQ(parts_for(8, 1024, 132), 16); }
TEST(Parts, ASequenceWithoutKeysHasOne) { EXPECT_EQ(parts_for(8, 0, 132), 1); }

}  // namespace
}  // namespace flashbook::decoding
