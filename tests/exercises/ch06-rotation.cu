#include <bit>

#include "chapters/06_fp8/exercises/rotated_output.cuh"
#include "common/ptx/wgmma_layout.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

constexpr int kRows = 64;

/// A warpgroup loads O in wgmma's layout, rotates it back and stores it.
template <int kHeadDim>
__global__ void rotate_output(float* rows,  // [64, kHeadDim]
                              const __grid_constant__ quantiser::Signs<kHeadDim> signs) {
  float output[kHeadDim / 2];
  const auto place = [](int i) {
    const MatrixPlace at = WgmmaM64<kHeadDim>::d(threadIdx.x, i);
    return at.row * kHeadDim + at.column;
  };
  for (int i = 0; i < kHeadDim / 2; ++i) output[i] = rows[place(i)];
  quantiser::rotate_back<kHeadDim>(output, signs);
  for (int i = 0; i < kHeadDim / 2; ++i) rows[place(i)] = output[i];
}

class Rotation : public HopperTest {};

/// Multiplies each row by H diag(s).
template <int kHeadDim>
void expect_rotated(const std::vector<float>& numbers) {
  quantiser::Signs<kHeadDim> signs;
  const std::vector<float> random = random_numbers(kHeadDim, 13);
  for (int i = 0; i < kHeadDim; ++i) {
    uint8_t& byte = signs.negative[i / 8];
    byte = uint8_t((i % 8 ? byte : 0) | (random[i] < 0) << i % 8);
  }
  const DeviceArray rows(DType::f32, numbers);
  run(rotate_output<kHeadDim>, dim3(1), dim3(128), 0, rows.as<float>(), signs);
  const std::vector<float> got = rows.download();
  Comparison comparison;
  for (int i = 0; i < int(got.size()); ++i) {
    const int row = i / kHeadDim, column = i % kHeadDim;
    double want = 0;
    for (int c = 0; c < kHeadDim; ++c)
      want += (std::popcount(unsigned(c & column)) % 2 == 1 ? -1.0 : 1.0) * numbers[row * kHeadDim + c];
    comparison.expect(got[i], random[column] < 0 ? -want : want, 1e-3,
                      [&] { return "row " + std::to_string(row) + ", column " + std::to_string(column); });
  }
  comparison.finish();
}

template <int kHeadDim>
void expect_random_rotated() {
  expect_rotated<kHeadDim>(random_numbers(kRows * kHeadDim, 14));
}

TEST_F(Rotation, OfOneElement) {
  std::vector<float> numbers(kRows * 64);  // row i is nonzero in column i only
  for (int i = 0; i < 64; ++i) numbers[i * 64 + i] = 8;
  expect_rotated<64>(numbers);
}
TEST_F(Rotation, HeadDim64) { expect_random_rotated<64>(); }
TEST_F(Rotation, HeadDim128) { expect_random_rotated<128>(); }

}  // namespace
}  // namespace flashbook::testing
