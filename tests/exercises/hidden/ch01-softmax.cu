#include "tests/exercises/ch01-softmax.cu"

namespace flashbook::testing {
// A maximum must start at -inf, not at a number that seems low enough.
TEST_F(Softmax, OfScoresBelowAnyGuess) { expect_softmax({-1e5f}, rows_of(9, 23, true), 1, -1e5f); }
TEST_F(Softmax, OfMoreRowsThanABlock) {
  expect_softmax({4, 2, -7}, rows_of(drawn(140, 200, 1), drawn(17, 25, 2), true), 3);
}
}  // namespace flashbook::testing
