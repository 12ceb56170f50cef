#include "chapters/01_naive_attention/exercises/scaled_rows.cuh"
#include "tests/exercises/exercise.h"
#include "tests/support/waste.h"

namespace flashbook::testing {
namespace {

class Rows : public MachineTest {};

/// Divides random rows, and fails the test if a number is wrong or one past the last row is touched.
void expect_divided(int rows, int columns) {
  const int spare = naive::kScaledThreads;
  const std::vector<float> numbers = random_numbers(std::size_t(rows + spare) * columns, 1);
  std::vector<float> sums = random_numbers(std::size_t(rows + spare), 2);
  for (float& sum : sums) sum = 1 + std::abs(sum);
  const DeviceArray o(DType::f32, numbers), row_sum(DType::f32, sums);
  run(naive::divide_rows, dim3(unsigned(ceil_div(rows, naive::kScaledThreads))), dim3(naive::kScaledThreads),
      0, o.as<float>(), static_cast<const float*>(row_sum.as<float>()), rows, columns);
  const std::vector<float> got = o.download();
  Comparison comparison;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const int row = int(i) / columns;
    comparison.expect(got[i], row < rows ? numbers[i] / sums[std::size_t(row)] : numbers[i], 1e-5, [&] {
      return "row " + std::to_string(row) + ", column " + std::to_string(int(i) % columns) +
             (row < rows ? "" : ", past the last row,");
    });
  }
  comparison.finish();
}

/// Expects divided rows, and that no sector was wasted.
void expect_no_sector_too_many(int rows, int columns) {
  wasted_sectors();  // discard earlier counts
  expect_divided(rows, columns);
  const std::string waste = observed(wasted_sectors());
  if (!waste.empty()) ADD_FAILURE() << waste;
}

TEST_F(Rows, OfWholeBlocks) { expect_divided(256, 64); }
TEST_F(Rows, OfFewerRowsThanThreads) { expect_divided(70, 128); }
TEST_F(Rows, OfColumnsThatAreNoMultipleOf32) { expect_divided(150, 40); }
TEST_F(Rows, TouchesNoSectorTooMany) { expect_no_sector_too_many(256, 64); }
TEST_F(Rows, NorWhereTheRowsEnd) { expect_no_sector_too_many(70, 128); }

}  // namespace
}  // namespace flashbook::testing
