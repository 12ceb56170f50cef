#include "tests/exercises/capstone-backward.cu"

namespace flashbook::testing {
TEST_F(Backward, OneQueryAndManyKeys) { expect_right(capstone_spec(1, 2, 1, 1, drawn(90, 130, 1), false)); }
TEST_F(Backward, OneKey) { expect_right(capstone_spec(1, 1, 1, drawn(12, 30, 2), 1, false)); }
TEST_F(Backward, MoreKeysThanQueriesUnderACausalMask) {
  expect_right(capstone_spec(1, 2, 1, drawn(25, 40, 3), drawn(80, 110, 4), true));
}
TEST_F(Backward, ScoresThatAreLarge) {
  expect_right(capstone_spec(1, 1, 1, drawn(30, 50, 5), drawn(70, 100, 6), false), InputKind::large_scores);
}
TEST_F(Backward, AScaleOfItsOwn) {
  Spec spec = capstone_spec(1, 1, 1, drawn(30, 50, 7), drawn(60, 80, 8), true);
  spec.scale = 0.01f * float(drawn(20, 45, 9));
  expect_right(spec);
}
}  // namespace flashbook::testing
