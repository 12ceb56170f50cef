// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/capstone-backward.cu"

namespace flashbook::testing {
namespace {

TEST_F(Backward, OneQueryAndManyKeys) { expect_right(capstone_shape(1, 2, 1, 1, 111, false)); }
TEST_F(Backward, OneKey) { expect_right(capstone_shape(1, 1, 1, 17, 1, false)); }
TEST_F(Backward, MoreKeysThanQueriesUnderACausalMask) {
  expect_right(capstone_shape(1, 2, 1, 30, 100, true));
}
TEST_F(Backward, ScoresThatAreLarge) {
  expect_right(capstone_shape(1, 1, 1, 40, 90, false), InputKind::large_scores);
}
TEST_F(Backward, AScaleOfItsOwn) {
  Shape shape = capstone_shape(1, 1, 1, 40, 70, true);
  shape.scale = 0.3f;
  expect_right(shape);
}

}  // namespace
}  // namespace flashbook::testing
