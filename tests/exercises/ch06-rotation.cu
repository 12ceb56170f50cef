#include <bit>

#include "chapters/06_fp8/step4_hadamard.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

/// A warp rotates 256 elements: 4, 2 or 1 rows.
template <int kHeadDim>
__global__ void rotate_rows(float* rows,  // [rows, kHeadDim]
                            const __grid_constant__ quantiser::Signs<kHeadDim> signs) {
  float* own = rows + (blockIdx.x * 32 + threadIdx.x) * quantiser::kColumns;
  float value[quantiser::kColumns];
  for (int i = 0; i < quantiser::kColumns; ++i) value[i] = own[i];
  quantiser::rotate<kHeadDim>(value, signs);
  for (int i = 0; i < quantiser::kColumns; ++i) own[i] = value[i];
}

class Rotation : public HopperTest {};

/// Rows, each rotated by the matrix itself.
template <int kHeadDim>
void expect_rotated(const std::vector<float>& numbers) {
  quantiser::Signs<kHeadDim> signs;
  const std::vector<float> random = random_numbers(kHeadDim, 13);
  for (int i = 0; i < kHeadDim; ++i) {
    uint8_t& byte = signs.negative[i / 8];
    byte = uint8_t((i % 8 ? byte : 0) | (random[i] < 0) << i % 8);
  }
  const DeviceArray rows(DType::f32, numbers);
  run(rotate_rows<kHeadDim>, dim3(unsigned(numbers.size() / 256)), dim3(32), 0, rows.as<float>(), signs);
  const std::vector<float> got = rows.download();
  Comparison comparison;
  for (int i = 0; i < int(got.size()); ++i) {
    const int row = i / kHeadDim, column = i % kHeadDim;
    double want = 0;
    for (int c = 0; c < kHeadDim; ++c) {
      const bool negative = (random[c] < 0) != (std::popcount(unsigned(c & column)) % 2 == 1);
      want += (negative ? -1.0 : 1.0) * numbers[row * kHeadDim + c];
    }
    comparison.expect(got[i], want / std::sqrt(kHeadDim), 1e-4,
                      [&] { return "row " + std::to_string(row) + ", column " + std::to_string(column); });
  }
  comparison.finish();
}

template <int kHeadDim>
void expect_random_rotated() {
  expect_rotated<kHeadDim>(random_numbers(3 * 256, 14));
}

TEST_F(Rotation, OfOneElement) {
  std::vector<float> numbers(64 * 64);  // row i has column i alone
  for (int i = 0; i < 64; ++i) numbers[i * 64 + i] = 8;
  expect_rotated<64>(numbers);
}
TEST_F(Rotation, HeadDim64) { expect_random_rotated<64>(); }
TEST_F(Rotation, HeadDim128) { expect_random_rotated<128>(); }

}  // namespace
}  // namespace flashbook::testing
