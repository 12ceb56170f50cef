#include "tests/exercises/ch00-neighbours.cu"

namespace flashbook::testing {
TEST_F(Neighbours, WhereTheArrayEndsWithAWarp) {
  expect_sums(128 * drawn(1, 3, 1) + 32 * drawn(1, 3, 2), 128);
}
}  // namespace flashbook::testing
