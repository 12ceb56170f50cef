#include "chapters/09_masks/exercises/scaled_sequences.cuh"
#include "tests/exercises/hopper_kernel.h"

namespace flashbook::testing {
namespace {

using namespace masks;

/// Row kMapRows of the map is the end of a sequence (step2_varlen.cuh).
CUtensorMap varlen_map(const DeviceArray& tensor, int rows) {
  constexpr uint64_t kRowBytes = kScaledColumns * sizeof(__half);
  return device::tensor_map(
      {.dtype = DType::f16,
       .base = tensor.as<char>(),
       .size = {kScaledColumns, uint64_t(kMapRows), uint64_t(rows) + 1, uint64_t(kBack) + 1},
       .stride = {kRowBytes, kRowBytes, (uint64_t(1) << 34) - kRowBytes},
       .box = {kScaledColumns, kScaledRows, 1, 1}});
}

class Next : public HopperTest {};

void expect_scaled(const std::vector<int>& lengths) {
  std::vector<int> first_row = {0};
  std::vector<float> factors;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    first_row.push_back(first_row.back() + lengths[i]);
    factors.push_back(float(i + 1));
  }
  const int rows = first_row.back();
  std::vector<float> numbers(std::size_t(rows) * kScaledColumns);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = float(i % 100);  // exact in f16, even times 20
  device::Buffer first(device::Place::device, first_row.size() * sizeof(int));
  first.upload(std::as_bytes(std::span(first_row)));
  const DeviceArray from(DType::f16, numbers), to(DType::f16, numbers.size()), factor(DType::f32, factors);
  run(scale_sequences, dim3(1), dim3(32), sizeof(ScaledShared), varlen_map(from, rows), varlen_map(to, rows),
      static_cast<const int*>(first.data()), factor.as<float>(), int(lengths.size()));
  const std::vector<float> got = to.download();
  Comparison comparison;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    for (int row = first_row[i]; row < first_row[i + 1]; ++row)
      for (int column = 0; column < kScaledColumns; ++column) {
        const std::size_t at = std::size_t(row) * kScaledColumns + column;
        comparison.expect(got[at], double(numbers[at]) * factors[i], 0, [&] {
          return "row " + std::to_string(row - first_row[i]) + " of sequence " + std::to_string(i) +
                 ", column " + std::to_string(column);
        });
      }
  comparison.finish();
}

TEST_F(Next, OfOneSequence) { expect_scaled({70}); }
TEST_F(Next, OfWholeTiles) { expect_scaled({32, 64, 32}); }
TEST_F(Next, OfTwoSequences) { expect_scaled({40, 50}); }
TEST_F(Next, OfSequencesOfOneRow) { expect_scaled({1, 1, 33, 1}); }
TEST_F(Next, OfSequencesWithoutRows) { expect_scaled({0, 31, 0, 0, 5, 0}); }

}  // namespace
}  // namespace flashbook::testing
