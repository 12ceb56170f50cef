#include "chapters/00_the_machine/exercises/transpose.cuh"
#include "tests/exercises/exercise.h"
#include "tests/support/waste.h"

namespace flashbook::testing {
namespace {

class Transpose : public MachineTest {};

/// Transposes random numbers, and fails the test if one ends up in the wrong place.
void expect_transposed(int rows, int columns) {
  const std::vector<float> numbers = random_numbers(std::size_t(rows * columns), 1);
  const DeviceArray from(DType::f32, numbers), to(DType::f32, numbers.size());
  run(machine::transpose, dim3(unsigned(columns / machine::kSide), unsigned(rows / machine::kSide)),
      dim3(machine::kSide, machine::kRowsAtOnce), 0, from.as<float>(), rows, columns, to.as<float>());
  const std::vector<float> got = to.download();
  Comparison comparison;
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c)
      comparison.expect(got[std::size_t(c * rows + r)], numbers[std::size_t(r * columns + c)], 0, [&] {
        return "row " + std::to_string(c) + ", column " + std::to_string(r) + " of the result";
      });
  comparison.finish();
}

/// Expects a transposed result, and that no sector was wasted and no bank conflict occurred.
void expect_no_sector_too_many(int rows, int columns) {
  wasted_sectors();  // discard earlier counts
  expect_transposed(rows, columns);
  const std::string waste = observed(wasted_sectors());
  if (!waste.empty()) ADD_FAILURE() << waste;
}
void expect_no_bank_conflict(int rows, int columns) {
  bank_conflicts();  // discard earlier counts
  expect_transposed(rows, columns);
  const std::string waste = observed(bank_conflicts());
  if (!waste.empty()) ADD_FAILURE() << waste;
}

TEST_F(Transpose, OfOneSquare) { expect_transposed(32, 32); }
TEST_F(Transpose, OfManySquares) { expect_transposed(64, 96); }
TEST_F(Transpose, TouchesNoSectorTooMany) { expect_no_sector_too_many(64, 96); }
TEST_F(Transpose, HasNoBankConflict) {
  expect_no_sector_too_many(64, 96);
  expect_no_bank_conflict(64, 96);
}

}  // namespace
}  // namespace flashbook::testing
