// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/capstone-forward.cu"

namespace flashbook::testing {
namespace {

TEST_F(Forward, OneQueryAndManyKeys) { expect_right(capstone_shape(1, 2, 1, 1, 211, false)); }
TEST_F(Forward, OneKey) { expect_right(capstone_shape(1, 1, 1, 17, 1, false)); }
TEST_F(Forward, MoreKeysThanQueriesUnderACausalMask) { expect_right(capstone_shape(1, 2, 1, 50, 170, true)); }
TEST_F(Forward, ScoresThatAreLarge) {
  expect_right(capstone_shape(1, 1, 1, 40, 150, false), InputKind::large_scores);
}
TEST_F(Forward, AScaleOfItsOwn) {
  Shape shape = capstone_shape(1, 1, 1, 40, 70, true);
  shape.scale = 0.3f;
  expect_right(shape);
}

}  // namespace
}  // namespace flashbook::testing
