#include <numeric>

#include "chapters/09_masks/step2_packed.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

/// Looks for every place. A warp.
__global__ void search(const int* first_tile, int count, int places, float* found) {  // [places]
  for (int place = 0; place < places; ++place) {
    const int is = masks::last_at_most(first_tile, count, place);
    if (threadIdx.x == 0) found[place] = float(is);
  }
}

/// Sequences of so many tiles each, of which some have none.
void expect_found(const std::vector<int>& tiles) {
  std::vector<int> first_tile = {0};
  for (int of_sequence : tiles) first_tile.push_back(first_tile.back() + of_sequence);
  const int places = first_tile.back(), count = int(tiles.size());
  device::Buffer buffer(device::Place::device, std::size_t(count) * sizeof(int));
  buffer.upload(
      std::as_bytes(std::span(first_tile)).first(buffer.bytes()));  // what lies beyond is not looked at
  const DeviceArray found(DType::f32, std::size_t(places));
  run(search, dim3(1), dim3(32), 0, static_cast<const int*>(buffer.data()), count, places, found.as<float>());
  const std::vector<float> got = found.download();
  Comparison comparison;
  for (int place = 0; place < places; ++place) {
    int want = 0;
    while (first_tile[want + 1] <= place) ++want;
    comparison.expect(got[place], want, 0,
                      [&] { return "the sequence that has tile " + std::to_string(place); });
  }
  comparison.finish();
}

class Search : public MachineTest {};

TEST_F(Search, OfOneSequence) { expect_found({5}); }
TEST_F(Search, OfAFew) { expect_found({4, 3, 3, 2, 1}); }
TEST_F(Search, SequencesWithoutTiles) { expect_found({3, 0, 0, 2, 0, 4}); }
TEST_F(Search, OfAsManyAsLanes) { expect_found(std::vector<int>(32, 2)); }
TEST_F(Search, OfMoreThanLanes) { expect_found(std::vector<int>(100, 1)); }
TEST_F(Search, OfAThousand) {
  std::vector<int> tiles(1000);
  for (std::size_t i = 0; i < tiles.size(); ++i) tiles[i] = i % 7 == 0 ? 2 : 0;
  tiles.back() = 1;
  expect_found(tiles);
}

}  // namespace
}  // namespace flashbook::testing
