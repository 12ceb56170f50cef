#include "chapters/07_backward/exercises/rotated_turns.cuh"
#include "tests/exercises/exercise.h"
#include "tests/support/machine.h"

namespace flashbook::testing {
namespace {

constexpr int kFloats = 4 * backward::kPartWriters;  // floats per part

/// Returns the kernel's sums of `parts`, [heads, tiles, kFloats].
std::vector<float> sums_of(const std::vector<float>& parts, int heads, int tiles) {
  const DeviceArray from(DType::f32, parts), sums(DType::f32, std::vector<float>(parts.size() / tiles)),
      semaphores(DType::f32, std::vector<float>(std::size_t(heads) * tiles));
  run(device::Start::cooperative, backward::add_parts, dim3(unsigned(tiles), unsigned(heads)),
      dim3(backward::kPartWriters + 32), 0, static_cast<const float4*>(from.as<float4>()), sums.as<float4>(),
      semaphores.as<int>());
  return sums.download();
}

std::vector<float> random_parts(int heads, int tiles) {
  return random_numbers(std::size_t(heads) * tiles * tiles * kFloats, 1);
}

/// Compares with sums in float, in the order of the turns. A `tolerance` of 0 demands the same bits.
void expect_sums(int heads, int tiles, double tolerance) {
  const std::vector<float> parts = random_parts(heads, tiles), got = sums_of(parts, heads, tiles);
  Comparison comparison;
  for (int i = 0; i < int(got.size()); ++i) {
    const int tile = i / kFloats % tiles, head = i / kFloats / tiles;
    float sum = 0;
    for (int turn = 0; turn < tiles; ++turn) {
      const int block = (tile - turn + tiles) % tiles;
      sum += parts[((std::size_t(head) * tiles + block) * tiles + tile) * kFloats + i % kFloats];
    }
    comparison.expect(got[i], sum, tolerance, [&] {
      return "the sum of head " + std::to_string(head) + ", tile " + std::to_string(tile) + ", float " +
             std::to_string(i % kFloats);
    });
  }
  comparison.finish();
}

/// Runs with other warp and block orders: the sums must be the same bit for bit.
void expect_same_bits(int tiles) {
  const std::vector<float> parts = random_parts(1, tiles), once = sums_of(parts, 1, tiles);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const RandomWarpOrder order(seed);
    const std::vector<float> now = sums_of(parts, 1, tiles);
    int others = 0;
    for (std::size_t i = 0; i < once.size(); ++i) others += !(now[i] == once[i]) || once[i] == 0;
    EXPECT_EQ(others, 0) << "the number of sums that are 0 or differ in another run";
  }
}

class Adder : public HopperTest {};

constexpr double kAnyOrder = 1e-5;

TEST_F(Adder, OfOneTile) { expect_sums(1, 1, kAnyOrder); }
TEST_F(Adder, OfTwoTiles) { expect_sums(1, 2, kAnyOrder); }
TEST_F(Adder, OfManyTiles) { expect_sums(1, 7, kAnyOrder); }
TEST_F(Adder, TheBitsOfTheOrder) { expect_sums(1, 6, 0); }
TEST_F(Adder, TheSameBitsInEveryRun) { expect_same_bits(5); }

}  // namespace
}  // namespace flashbook::testing
