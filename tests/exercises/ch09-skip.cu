#include "chapters/09_masks/exercises/skipped_tiles.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

using namespace masks;

constexpr int kRows = 16;

struct TileBounds {
  HiddenFrom least, largest;
};

/// Writes the class of every pair of tiles. One thread.
__global__ void classify_all(const TileBounds* tiles, int key_tiles, int queries, float* classes) {
  for (int query = 0; query < queries; query += kRows)
    for (int tile = 0; tile < key_tiles; ++tile)
      *classes++ = float(
          classify_hidden(tiles[tile].least, tiles[tile].largest, query, min(query + kRows, queries) - 1));
}

class Skip : public MachineTest {};

/// Tiles of one or more keys each.
void expect_classes(const std::vector<std::vector<HiddenFrom>>& tiles, int queries) {
  std::vector<TileBounds> bounds;
  for (const std::vector<HiddenFrom>& keys : tiles) {
    TileBounds of_tile{keys[0], keys[0]};
    for (const HiddenFrom& key : keys) {
      of_tile.least = {std::min(of_tile.least.begin, key.begin), std::min(of_tile.least.end, key.end)};
      of_tile.largest = {std::max(of_tile.largest.begin, key.begin), std::max(of_tile.largest.end, key.end)};
    }
    bounds.push_back(of_tile);
  }
  device::Buffer buffer(device::Place::device, bounds.size() * sizeof(TileBounds));
  buffer.upload(std::as_bytes(std::span(bounds)));
  const int query_tiles = ceil_div(queries, kRows), key_tiles = int(tiles.size());
  const DeviceArray classes(DType::f32, std::size_t(query_tiles) * key_tiles);
  run(classify_all, dim3(1), dim3(1), 0, static_cast<const TileBounds*>(buffer.data()), key_tiles, queries,
      classes.as<float>());
  const std::vector<float> got = classes.download();
  Comparison comparison;
  for (int row = 0; row < query_tiles; ++row)
    for (int tile = 0; tile < key_tiles; ++tile) {
      int seen = 0, pairs = 0;
      for (int query = row * kRows; query < std::min((row + 1) * kRows, queries); ++query)
        for (const HiddenFrom& key : tiles[tile]) {
          seen += query < key.begin || query >= key.end;
          ++pairs;
        }
      const TileClass want = seen == 0       ? TileClass::skip
                             : seen == pairs ? TileClass::full
                                             : TileClass::partial;
      comparison.expect(got[row * key_tiles + tile], double(want), 0, [&] {
        return "the class (0 skip, 1 partial, 2 full) of queries " + std::to_string(row * kRows) + " to " +
               std::to_string(std::min((row + 1) * kRows, queries) - 1) + " and tile of keys " +
               std::to_string(tile);
      });
    }
  comparison.finish();
}

TEST_F(Skip, NothingIsHidden) { expect_classes({{{64, 64}, {64, 64}}}, 64); }
TEST_F(Skip, EverythingIsHidden) { expect_classes({{{0, 64}, {0, 64}}}, 64); }
TEST_F(Skip, FromAQueryOn) { expect_classes({{{32, 64}}, {{40, 64}, {41, 64}}}, 64); }
TEST_F(Skip, UpToATilesEnd) { expect_classes({{{16, 32}}}, 64); }
TEST_F(Skip, AllButTheLastQueryOfATile) { expect_classes({{{16, 31}, {10, 31}}}, 64); }
TEST_F(Skip, AllButTheLastQueryThereIs) { expect_classes({{{0, 39}}, {{30, 39}}}, 40); }

}  // namespace
}  // namespace flashbook::testing
