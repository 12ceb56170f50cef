#include "chapters/06_fp8/epilogue.cuh"
#include "chapters/06_fp8/transpose.cuh"
#include "common/ptx/wgmma_layout.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

/// Which column of O the column of an accumulator is: V's columns are transposed in their own order.
__host__ __device__ constexpr int column_of(int column) {
  return column / 16 * 16 + fp8::column_at(column % 16);
}

/// A warpgroup takes O as wgmma leaves it, gives the means back and writes O down.
template <int kHeadDim>
__global__ void give_back(const float* before,  // [64, kHeadDim]
                          const float* means,   // [kHeadDim]
                          const float* sees,    // [64], 0 or 1
                          float* after) {       // [64, kHeadDim]
  float output[kHeadDim / 2];
  bool rows[2];
  for (int i = 0; i < kHeadDim / 2; ++i) {
    const MatrixPlace at = WgmmaM64<kHeadDim>::d(threadIdx.x, i);
    output[i] = before[at.row * kHeadDim + column_of(at.column)];
    rows[fp8::row_of(i)] = sees[at.row] != 0;
  }
  fp8::add_value_means(output, rows, means);
  for (int i = 0; i < kHeadDim / 2; ++i) {
    const MatrixPlace at = WgmmaM64<kHeadDim>::d(threadIdx.x, i);
    after[at.row * kHeadDim + column_of(at.column)] = output[i];
  }
}

class Means : public HopperTest {};

/// Rows see keys where `sees` says so.
template <int kHeadDim>
void expect_means(const std::vector<float>& numbers, const std::vector<float>& mean_numbers,
                  const std::vector<float>& sees) {
  const DeviceArray before(DType::f32, numbers), means(DType::f32, mean_numbers), seen(DType::f32, sees),
      after(DType::f32, numbers.size());
  run(give_back<kHeadDim>, dim3(1), dim3(fp8::kWarpgroup), 0, before.as<float>(), means.as<float>(),
      seen.as<float>(), after.as<float>());
  const std::vector<float> got = after.download();
  Comparison comparison;
  for (int i = 0; i < int(got.size()); ++i) {
    const int row = i / kHeadDim, column = i % kHeadDim;
    comparison.expect(got[i], numbers[i] + sees[row] * mean_numbers[column], 1e-6, [&] {
      return "row " + std::to_string(row) + ", which sees " + (sees[row] != 0 ? "keys" : "none") +
             ", column " + std::to_string(column) + " of O,";
    });
  }
  comparison.finish();
}

template <int kHeadDim>
void expect_random_means() {
  expect_means<kHeadDim>(random_numbers(64 * kHeadDim, 31), random_numbers(kHeadDim, 32),
                         std::vector<float>(64, 1));
}

TEST_F(Means, OfTheColumns) {
  std::vector<float> means(64);
  for (int i = 0; i < 64; ++i) means[i] = float(i + 1);
  expect_means<64>(std::vector<float>(64 * 64), means, std::vector<float>(64, 1));
}
TEST_F(Means, HeadDim128) { expect_random_means<128>(); }
TEST_F(Means, OfRowsThatSeeNoKey) {
  std::vector<float> numbers(64 * 64), sees(64);
  for (int row = 0; row < 64; ++row) sees[row] = row % 16 == 3 || row > 40 ? 0 : 1;
  expect_means<64>(numbers, random_numbers(64, 33), sees);
}

}  // namespace
}  // namespace flashbook::testing
