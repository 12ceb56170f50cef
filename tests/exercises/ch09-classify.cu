#include "chapters/09_masks/step3_ranges.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

using namespace masks;

constexpr int kRows = 6, kKeys = 8;

/// The class of every tile. One thread.
__global__ void classify_all(Band band, Sequence sequence, float* classes) {  // [query tiles, key tiles]
  for (int query = 0; query < sequence.queries; query += kRows)
    for (int key = 0; key < sequence.keys; key += kKeys) {
      const KeyRanges first = band.ranges(sequence, query),
                      last = band.ranges(sequence, min(query + kRows, sequence.queries) - 1);
      *classes++ = float(classify_ranges(first, last, key, kKeys));
    }
}

/// The definition: the key at a query's own place is aligned to the bottom right.
bool sees(const Band& band, int queries, int keys, int query, int key) {
  const int own = query + keys - queries;
  if (key >= keys) return false;
  const bool before_right = key <= own + band.right, after_left = key >= own - band.left || key < band.sinks;
  return (before_right && after_left) || key < band.prefix;
}

void expect_classes(const Band& band, int queries, int keys) {
  const int query_tiles = (queries + kRows - 1) / kRows, key_tiles = (keys + kKeys - 1) / kKeys;
  const DeviceArray classes(DType::f32, std::size_t(query_tiles) * key_tiles);
  run(classify_all, dim3(1), dim3(1), 0, band, Sequence{0, queries, 0, keys}, classes.as<float>());
  const std::vector<float> got = classes.download();
  Comparison comparison;
  for (int row = 0; row < query_tiles; ++row)
    for (int tile = 0; tile < key_tiles; ++tile) {
      int seen = 0, pairs = 0;
      for (int query = row * kRows; query < std::min((row + 1) * kRows, queries); ++query)
        for (int key = tile * kKeys; key < (tile + 1) * kKeys; ++key, ++pairs)
          seen += sees(band, queries, keys, query, key);
      const TileClass want = seen == 0       ? TileClass::skip
                             : seen == pairs ? TileClass::full
                                             : TileClass::partial;
      comparison.expect(got[row * key_tiles + tile], double(want), 0, [&] {
        return "the class (0 skip, 1 partial, 2 full) of queries " + std::to_string(row * kRows) + " to " +
               std::to_string(std::min((row + 1) * kRows, queries) - 1) + " and keys " +
               std::to_string(tile * kKeys) + " to " + std::to_string((tile + 1) * kKeys - 1);
      });
    }
  comparison.finish();
}

constexpr int kAll = Band::kNoLimit;

class Classify : public MachineTest {};

TEST_F(Classify, EverythingIsSeen) { expect_classes({kAll, kAll, 0, 0}, 12, 29); }
TEST_F(Classify, UnderACausalMask) { expect_classes({kAll, 0, 0, 0}, 30, 40); }
TEST_F(Classify, UnderAWindow) { expect_classes({20, 3, 0, 0}, 60, 60); }
TEST_F(Classify, RowsThatSeeNothing) { expect_classes({25, 0, 0, 0}, 50, 30); }
TEST_F(Classify, WithAPrefix) { expect_classes({9, 0, 0, 19}, 60, 60); }
TEST_F(Classify, WithSinks) { expect_classes({25, 0, 9, 0}, 60, 60); }

}  // namespace
}  // namespace flashbook::testing
