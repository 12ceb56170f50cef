#include "tests/exercises/ch00-transpose.cu"

namespace flashbook::testing {
TEST_F(Transpose, IsAsGoodWithOneRowOfSquares) {
  const int columns = 32 * drawn(3, 8, 1);
  expect_no_sector_too_many(32, columns);
  expect_no_bank_conflict(32, columns);
}
}  // namespace flashbook::testing
