#include "tests/exercises/ch03-race.cu"

namespace flashbook::testing {
TEST_F(Race, ManyQueriesABlock) {
  expect_right<16>(attention_spec(2, 1, drawn(33, 47, 1), drawn(55, 75, 2), true));
}
}  // namespace flashbook::testing
