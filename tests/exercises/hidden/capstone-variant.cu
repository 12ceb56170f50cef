#include "tests/exercises/capstone-variant.cu"

namespace flashbook::testing {
TEST_F(Variant, OneQueryAndManyKeys) { expect_right(capstone_spec(1, 2, 1, 1, drawn(150, 230, 1), false)); }
TEST_F(Variant, FewKeys) {
  expect_right(capstone_spec(1, 1, 1, drawn(15, 25, 2), drawn(6, 9, 3), false), {.width = 2, .by_head = 1});
}
TEST_F(Variant, MoreKeysThanQueries) {
  expect_right(capstone_spec(1, 2, 1, drawn(30, 50, 4), drawn(120, 170, 5), false), {.width = 8});
}
TEST_F(Variant, ScoresThatAreLarge) {
  const int length = drawn(60, 90, 6);
  expect_right(capstone_spec(1, 1, 1, length, length, false), {.by_head = 2000}, InputKind::large_scores);
}
TEST_F(Variant, ParametersOfItsOwn) {
  Spec spec = capstone_spec(1, 1, 1, drawn(40, 60, 7), drawn(70, 90, 8), false);
  spec.scale = 0.3f;
  expect_right(spec, {.width = drawn(9, 13, 9), .stride = drawn(5, 7, 10), .cap = 0.4f, .by_head = 0.6f});
}
}  // namespace flashbook::testing
