#include "chapters/07_backward/exercises/column_means.cuh"
#include "tests/exercises/hopper_kernel.h"
#include "tests/support/machine.h"

namespace flashbook::testing {
namespace {

constexpr int kColumns = backward::kMeanColumns, kRows = backward::kMeanRows;

/// The kernel's sums and means of `rows`, [tiles, kColumns].
struct Left {
  std::vector<float> sums, means;
};

Left left_of(const std::vector<float>& rows, int tiles, int blocks) {
  const std::size_t count = std::size_t(tiles) * kColumns;
  const DeviceArray from(DType::f32, rows), sums(DType::f32, std::vector<float>(count)),
      means(DType::f32, count), semaphores(DType::f32, std::vector<float>(tiles));
  run(backward::column_means, dim3(unsigned(blocks)), dim3(kColumns), 0,
      static_cast<const float*>(from.as<float>()), sums.as<float>(), means.as<float>(), semaphores.as<int>(),
      tiles);
  return {sums.download(), means.download()};
}

std::vector<float> random_rows(int tiles, int blocks) {
  return random_numbers(std::size_t(tiles) * blocks * kRows * kColumns, 1);
}

void expect_near(const std::vector<float>& got, const std::vector<float>& rows, int blocks, double factor,
                 const char* what) {
  const int of_tile = blocks * kRows;
  Comparison comparison;
  for (std::size_t i = 0; i < got.size(); ++i) {
    double sum = 0;
    for (int row = 0; row < of_tile; ++row)
      sum += rows[(i / kColumns * std::size_t(of_tile) + std::size_t(row)) * kColumns + i % kColumns];
    comparison.expect(got[i], factor * sum, 1e-5 * of_tile, [&] {
      return std::string(what) + " of tile " + std::to_string(i / kColumns) + ", column " +
             std::to_string(i % kColumns);
    });
  }
  comparison.finish();
}

void expect_sums(int tiles, int blocks) {
  const std::vector<float> rows = random_rows(tiles, blocks);
  expect_near(left_of(rows, tiles, blocks).sums, rows, blocks, 1, "the sum");
}

void expect_means(int tiles, int blocks) {
  const std::vector<float> rows = random_rows(tiles, blocks);
  expect_near(left_of(rows, tiles, blocks).means, rows, blocks, 1.0 / (blocks * kRows), "the mean");
}

/// Runs with warps and copies in a different order: the bits must be the same.
void expect_same_bits(int tiles, int blocks) {
  const std::vector<float> rows = random_rows(tiles, blocks);
  const Left once = left_of(rows, tiles, blocks);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const RandomWarpOrder order(seed);
    const Left again = left_of(rows, tiles, blocks);
    int others = 0;
    for (std::size_t i = 0; i < once.sums.size(); ++i)
      others += once.sums[i] != again.sums[i] || !(once.means[i] == again.means[i]);
    EXPECT_EQ(others, 0) << "the number of sums or means that differ in another run";
  }
}

class Turn : public HopperTest {};

TEST_F(Turn, SumsOfManyTiles) { expect_sums(3, 4); }
TEST_F(Turn, MeansOfOneBlock) { expect_means(2, 1); }
TEST_F(Turn, MeansOfManyBlocks) { expect_means(1, 6); }
TEST_F(Turn, TheSameBitsInEveryRun) { expect_same_bits(3, 6); }

}  // namespace
}  // namespace flashbook::testing
