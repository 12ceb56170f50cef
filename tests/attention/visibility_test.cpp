#include "common/attention/visibility.h"

#include <gtest/gtest.h>

#include "common/attention/spec.h"
#include "tests/support/input_error.h"
#include "tests/support/masks.h"

namespace flashbook {
namespace {

constexpr int kMasks = 10000;

/// Returns the visible pairs of a tile, counted one by one.
int count(const Spec& spec, int batch, int head, const ScoreTile& tile) {
  int pairs = 0;
  for (int i = tile.first_query; i < std::min(spec.seqlen_q, tile.first_query + tile.queries); ++i)
    for (int j = tile.first_key; j < std::min(spec.seqlen_k, tile.first_key + tile.keys); ++j)
      pairs += testing::sees_by_definition(spec, batch, head, i, j);
  return pairs;
}

/// Returns the class of a tile with this many visible pairs.
TileClass exact_class(const Spec& spec, const ScoreTile& tile, int visible) {
  const int queries = std::min(tile.queries, spec.seqlen_q - tile.first_query);
  return visible == 0                     ? TileClass::skip
         : visible == queries * tile.keys ? TileClass::full
                                          : TileClass::partial;
}

TEST(Visibility, TileClassesKeepTheirWordUnderRandomMasks) {
  std::mt19937 random(1);
  int classes[3] = {};
  for (int mask = 0; mask < kMasks; ++mask) {
    const Spec spec = testing::random_mask(random);
    validate(spec);
    const int batch = int(random() % spec.batch), head = int(random() % spec.heads);
    for (int i = 0; i < 4; ++i) {
      const ScoreTile tile{.first_query = int(random() % spec.seqlen_q),
                           .queries = 1 + int(random() % 12),
                           .first_key = int(random() % spec.seqlen_k),
                           .keys = 1 + int(random() % 12)};
      const TileClass said = classify(spec, batch, head, tile);
      const TileClass exact = exact_class(spec, tile, count(spec, batch, head, tile));
      ++classes[int(said)];
      const bool may_differ = std::ranges::any_of(definitions(), [&](const Definition* feature) {
        return feature->mask != nullptr && !feature->mask->is_exact && feature->is_in(spec);
      });
      ASSERT_TRUE(said == exact || (may_differ && said == TileClass::partial))
          << describe(spec) << ", batch " << batch << ", head " << head << ", queries from "
          << tile.first_query << " " << tile.queries << ", keys from " << tile.first_key << " " << tile.keys;
    }
  }
  for (int tiles : classes) EXPECT_GT(tiles, kMasks / 10) << "every class occurs often";
}

TEST(Visibility, PairsAndRangesAgreeWithTheDefinitionUnderRandomMasks) {
  std::mt19937 random(2);
  for (int mask = 0; mask < kMasks / 10; ++mask) {
    const Spec spec = testing::random_mask(random);
    double all = 0;
    for (int batch = 0; batch < spec.batch; ++batch)
      for (int head = 0; head < spec.heads; ++head) {
        const double pairs = count(spec, batch, head, {0, spec.seqlen_q, 0, spec.seqlen_k});
        all += pairs;
        const bool half = spec.causal() && spec.seqlen_q == spec.seqlen_k;  // the papers' count
        ASSERT_EQ(visible_pairs(spec, batch, head), half ? spec.seqlen_q * spec.seqlen_q / 2.0 : pairs)
            << describe(spec);
        for (int i = 0; i < spec.seqlen_q; ++i)
          for (int j = 0; j < spec.seqlen_k; ++j)
            ASSERT_EQ(sees(spec, batch, head, i, j), testing::sees_by_definition(spec, batch, head, i, j))
                << describe(spec) << ", query " << i << ", key " << j;
        const int first = int(random() % spec.seqlen_q), queries = 1 + int(random() % 9);
        const KeyRange range = keys_seen(spec, batch, head, first, queries);
        ASSERT_TRUE(range.begin >= 0 && range.begin <= range.end && range.end <= spec.seqlen_k);
        ASSERT_EQ(count(spec, batch, head, {first, queries, 0, range.begin}), 0) << describe(spec);
        ASSERT_EQ(count(spec, batch, head, {first, queries, range.end, spec.seqlen_k - range.end}), 0)
            << describe(spec);
      }
    if (spec.causal()) continue;
    ASSERT_EQ(visible_pairs(spec), all) << describe(spec);
  }
}

/// Returns the rows of a mask, such as "11.. 01..".
std::string picture(const Spec& spec) {
  std::string text;
  for (int i = 0; i < spec.seqlen_q; ++i) {
    for (int j = 0; j < spec.seqlen_k; ++j) text += sees(spec, 0, 0, i, j) ? '1' : '.';
    text += ' ';
  }
  return text;
}

TEST(Visibility, LooksAsThePapersDrawIt) {
  const auto drawn = [](int queries, int keys, const Visibility& visibility) {
    const Spec spec{{.seqlen_q = queries, .seqlen_k = keys}, visibility};
    validate(spec);
    return picture(spec);
  };
  EXPECT_EQ(drawn(2, 3, {}), "111 111 ");
  EXPECT_EQ(drawn(2, 4, Visibility::causal()), "111. 1111 ");
  EXPECT_EQ(drawn(4, 2, Visibility::causal()), ".. .. 1. 11 ");
  EXPECT_EQ(drawn(4, 4, {.window = {.left = 1, .right = 0}}), "1... 11.. .11. ..11 ");
  EXPECT_EQ(drawn(4, 4, {.window = {.left = 0, .right = 1}}), "11.. .11. ..11 ...1 ");
  EXPECT_EQ(drawn(2, 5, {.window = {.left = 1, .right = 0}}), "..11. ...11 ") << "bottom right";
  EXPECT_EQ(drawn(4, 4, {.window = {.left = 0, .right = 0, .sinks = 1}}), "1... 11.. 1.1. 1..1 ");
  EXPECT_EQ(drawn(4, 4, {.window = {.right = 0}, .prefix = 2}), "11.. 11.. 111. 1111 ");
  EXPECT_EQ(drawn(4, 4, {.window = {.right = 0}, .documents = {{0, 1, 4}, {0, 1, 4}}}),
            "1... .1.. .11. .111 ");
  EXPECT_EQ(drawn(3, 4, {.documents = {{0, 2, 2, 3}, {0, 1, 3, 4}}}), "1... 1... ...1 ")
      << "a document without queries";
  EXPECT_EQ(drawn(2, 4, {.window = {.right = 0}, .lengths = {3}}), "11.. 111. ");
  // FlashMask's form of a document mask: causal, and queries from LTS on do not see the key.
  EXPECT_EQ(drawn(4, 4, {.window = {.right = 0}, .columns = {.bounds = 1, .queries = {2, 2, 4, 4}}}),
            "1... 11.. ..1. ..11 ");
  EXPECT_EQ(drawn(3, 2, {.columns = {.bounds = 2, .queries = {2, 1, 3, 2}}}), ".. 1. .1 ") << "LTS, UTE";
  EXPECT_EQ(drawn(4, 4, {.blocks = {2, 2, {0, 1, 3}, {0, 0, 1}}}), "11.. 11.. 1111 1111 ");
  EXPECT_EQ(drawn(2, 3, {.window = {.right = 0}, .dense = {.visible = {0, 1, 1, 1, 0, 1}}}), ".1. 1.1 ");
}

TEST(Visibility, RefusesWhatDoesNotFit) {
  const auto complaint = [](const Visibility& visibility) {
    const Spec spec{{.batch = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 8, .seqlen_k = 6}, visibility};
    return testing::input_error_of([&] { validate(spec); });
  };
  EXPECT_EQ(complaint({.window = {.left = -2}}),
            "a window's side is below -1: give a number of keys, or -1 for all");
  EXPECT_EQ(complaint({.prefix = -1}), "the prefix is negative: give a number of keys");
  EXPECT_EQ(complaint({.lengths = {6}}), "lengths has 1 numbers: give 2, one per sequence");
  EXPECT_EQ(complaint({.lengths = {0, 7}}), "lengths has 7: give numbers from 0 to 6, the number of keys");
  EXPECT_EQ(complaint({.lengths = {0, 6}}), "");
  EXPECT_EQ(complaint({.lengths = {6, 6}, .documents = {{0, 8}, {0, 6}}}),
            "both documents and lengths are given: give documents for one sequence, or lengths for a batch");
  EXPECT_EQ(complaint({.documents = {{0}, {0}}}),
            "first_query has no documents: give at least a start and an end");
  EXPECT_EQ(complaint({.documents = {{0, 8}, {}}}),
            "first_key has 0 numbers: give 2, as many as first_query");
  EXPECT_EQ(complaint({.documents = {{0, 5}, {0, 6}}}),
            "first_query does not ascend from 0 to 8: give the sums of the documents' queries");
  EXPECT_EQ(complaint({.documents = {{0, 4, 8}, {0, 7, 6}}}),
            "first_key does not ascend from 0 to 6: give the sums of the documents' keys");
  EXPECT_EQ(complaint({.columns = {.bounds = 3}}), "a key has 3 bounds: give 1, 2 or 4");
  EXPECT_EQ(complaint({.columns = {.heads = 4, .bounds = 1}}),
            "intervals are for 4 heads: give 1 or 2, the number of key heads");
  EXPECT_EQ(complaint({.columns = {.bounds = 1, .queries = std::vector<int>(11)}}),
            "intervals has 11 numbers: give 12, batch * heads * seqlen_k * bounds");
  EXPECT_EQ(complaint({.columns = {.bounds = 1, .queries = std::vector<int>(12, 9)}}),
            "intervals has 9: give numbers from 0 to 8, the number of queries");
  EXPECT_EQ(complaint({.dense = {.heads = 2, .visible = {1}}}), "the mask is for 2 heads: give 1 or 4");
  EXPECT_EQ(complaint({.dense = {.visible = {1}}}),
            "the mask has 1 numbers: give 96, batch * heads * seqlen_q * seqlen_k");
  EXPECT_EQ(complaint({.blocks = {4, 0, {0}, {}}}), "a block has no pairs: give at least 1 query and 1 key");
  EXPECT_EQ(complaint({.blocks = {4, 4, {0, 1}, {0}}}),
            "first blocks has 2 numbers: give 3, one per row of blocks, and the end");
  EXPECT_EQ(complaint({.blocks = {4, 4, {0, 1, 2}, {0, 2}}}),
            "key_blocks has 2: give numbers from 0 to 1, the number of blocks of keys");
  EXPECT_EQ(complaint({.blocks = {4, 4, {0, 2, 2}, {1, 0}}}),
            "key_blocks are not in ascending order in row 0: sort them, without duplicates");
}

}  // namespace
}  // namespace flashbook
