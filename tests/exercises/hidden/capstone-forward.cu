#include "tests/exercises/capstone-forward.cu"

namespace flashbook::testing {
TEST_F(Forward, OneQueryAndManyKeys) { expect_right(capstone_spec(1, 2, 1, 1, drawn(180, 240, 1), false)); }
TEST_F(Forward, OneKey) { expect_right(capstone_spec(1, 1, 1, drawn(12, 40, 2), 1, false)); }
TEST_F(Forward, MoreKeysThanQueriesUnderACausalMask) {
  expect_right(capstone_spec(1, 2, 1, drawn(40, 60, 3), drawn(150, 190, 4), true));
}
TEST_F(Forward, ScoresThatAreLarge) {
  expect_right(capstone_spec(1, 1, 1, drawn(30, 60, 5), drawn(120, 160, 6), false), InputKind::large_scores);
}
TEST_F(Forward, AScaleOfItsOwn) {
  Spec spec = capstone_spec(1, 1, 1, drawn(30, 50, 7), drawn(60, 90, 8), true);
  spec.scale = 0.01f * float(drawn(20, 45, 9));
  expect_right(spec);
}
}  // namespace flashbook::testing
