#include "chapters/06_fp8/exercises/tile_means.cuh"
#include "common/ptx/wgmma_layout.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

constexpr int kRows = 64;

/// A warpgroup loads O in wgmma's layout, adds the means of all tiles and stores O.
template <int kHeadDim>
__global__ void add_means(const float* before,  // [64, kHeadDim]
                          const float* means,   // [tiles, kHeadDim]
                          const float* sums,    // [tiles, 64, 4], one per lane of a quad
                          int tiles,
                          float* after) {  // [64, kHeadDim]
  float output[kHeadDim / 2];
  const auto place = [](int i) { return WgmmaM64<kHeadDim>::d(threadIdx.x, i); };
  for (int i = 0; i < kHeadDim / 2; ++i) output[i] = before[place(i).row * kHeadDim + place(i).column];
  for (int tile = 0; tile < tiles; ++tile) {
    float own[2];
    for (int r = 0; r < 2; ++r) own[r] = sums[(tile * kRows + place(2 * r).row) * 4 + int(threadIdx.x % 4)];
    fp8::add_tile_means(output, own, means + tile * kHeadDim);
  }
  for (int i = 0; i < kHeadDim / 2; ++i) after[place(i).row * kHeadDim + place(i).column] = output[i];
}

class Means : public HopperTest {};

/// `sums` holds four partial sums per row of each tile.
template <int kHeadDim>
void expect_means(const std::vector<float>& numbers, const std::vector<float>& mean_numbers,
                  const std::vector<float>& sum_numbers) {
  const DeviceArray before(DType::f32, numbers), means(DType::f32, mean_numbers),
      sums(DType::f32, sum_numbers), after(DType::f32, numbers.size());
  const int tiles = int(mean_numbers.size()) / kHeadDim;
  run(add_means<kHeadDim>, dim3(1), dim3(128), 0, before.as<float>(), means.as<float>(), sums.as<float>(),
      tiles, after.as<float>());
  const std::vector<float> got = after.download();
  Comparison comparison;
  for (int i = 0; i < int(got.size()); ++i) {
    const int row = i / kHeadDim, column = i % kHeadDim;
    double want = numbers[i];
    for (int tile = 0; tile < tiles; ++tile) {
      double weight = 0;
      for (int lane = 0; lane < 4; ++lane) weight += sum_numbers[(tile * kRows + row) * 4 + lane];
      want += weight * mean_numbers[tile * kHeadDim + column];
    }
    comparison.expect(got[i], want, 1e-4, [&] {
      return "row " + std::to_string(row) + ", column " + std::to_string(column) + " of O";
    });
  }
  comparison.finish();
}

/// Returns random sums of probabilities, from 0 on.
std::vector<float> random_sums(int tiles) {
  std::vector<float> sums = random_numbers(std::size_t(tiles) * kRows * 4, 34);
  for (float& sum : sums) sum = std::abs(sum);
  return sums;
}

template <int kHeadDim>
void expect_random_means(int tiles) {
  expect_means<kHeadDim>(random_numbers(kRows * kHeadDim, 31), random_numbers(tiles * kHeadDim, 32),
                         random_sums(tiles));
}

TEST_F(Means, OfTheColumns) {
  std::vector<float> means(64);
  for (int i = 0; i < 64; ++i) means[i] = float(i + 1);
  expect_means<64>(std::vector<float>(kRows * 64), means, std::vector<float>(kRows * 4, 0.25f));
}
TEST_F(Means, HeadDim128) { expect_random_means<128>(2); }
TEST_F(Means, OfRowsThatSeeNoKey) {
  std::vector<float> numbers(kRows * 64), sums = random_sums(1);
  for (int row = 0; row < kRows; ++row)
    if (row % 16 == 3 || row > 40) std::fill_n(sums.begin() + row * 4, 4, 0.0f);
  expect_means<64>(numbers, random_numbers(64, 33), sums);
}

}  // namespace
}  // namespace flashbook::testing
