#include "chapters/09_masks/exercises/global_tokens.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

using masks::GlobalTokens;

constexpr int kRows = 6, kKeys = 8;

/// Writes the class of every tile. One thread.
__global__ void classify_all(GlobalTokens mask, float* classes) {  // [query tiles, key tiles]
  for (int query = 0; query < mask.tokens; query += kRows)
    for (int key = 0; key < mask.tokens; key += kKeys)
      *classes++ = float(
          masks::classify_global(mask, query, min(query + kRows, mask.tokens) - 1, key, key + kKeys - 1));
}

void expect_classes(const GlobalTokens& mask) {
  const int query_tiles = ceil_div(mask.tokens, kRows), key_tiles = ceil_div(mask.tokens, kKeys);
  const DeviceArray classes(DType::f32, std::size_t(query_tiles) * key_tiles);
  run(classify_all, dim3(1), dim3(1), 0, mask, classes.as<float>());
  const std::vector<float> got = classes.download();
  Comparison comparison;
  for (int row = 0; row < query_tiles; ++row)
    for (int tile = 0; tile < key_tiles; ++tile) {
      int seen = 0, pairs = 0;
      for (int query = row * kRows; query < std::min((row + 1) * kRows, mask.tokens); ++query)
        for (int key = tile * kKeys; key < (tile + 1) * kKeys; ++key, ++pairs)
          seen += key < mask.tokens &&
                  (query < mask.global || key < mask.global || std::abs(query - key) <= mask.window);
      const TileClass want = seen == 0       ? TileClass::skip
                             : seen == pairs ? TileClass::full
                                             : TileClass::partial;
      comparison.expect(got[row * key_tiles + tile], double(want), 0, [&] {
        return "the class (0 skip, 1 partial, 2 full) of queries " + std::to_string(row * kRows) + " to " +
               std::to_string(std::min((row + 1) * kRows, mask.tokens) - 1) + " and keys " +
               std::to_string(tile * kKeys) + " to " + std::to_string((tile + 1) * kKeys - 1) + ", with " +
               std::to_string(mask.global) + " global tokens and a window of " + std::to_string(mask.window) +
               ",";
      });
    }
  comparison.finish();
}

class Classify : public MachineTest {};

TEST_F(Classify, EverythingIsSeen) { expect_classes({29, 0, 40}); }
TEST_F(Classify, UnderAWindow) { expect_classes({72, 0, 19}); }
TEST_F(Classify, WithGlobalTokensInATile) { expect_classes({72, 3, 9}); }
TEST_F(Classify, WithAWholeTileOfThem) { expect_classes({72, 24, 9}); }
TEST_F(Classify, WithMoreThanATileOfThem) { expect_classes({70, 17, 14}); }
TEST_F(Classify, WithoutAWindow) { expect_classes({60, 10, 0}); }

}  // namespace
}  // namespace flashbook::testing
