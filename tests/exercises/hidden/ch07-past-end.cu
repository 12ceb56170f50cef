#include "tests/exercises/ch07-past-end.cu"

namespace flashbook::testing {
TEST_F(PastEnd, OfLargeScores) { expect_weights(3, drawn(40, 60, 1), drawn(35, 60, 2), 30); }
}  // namespace flashbook::testing
