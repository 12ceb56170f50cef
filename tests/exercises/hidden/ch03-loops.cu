#include "tests/exercises/ch03-loops.cu"

namespace flashbook::testing {
TEST_F(Loops, GroupsOfHeadsUnderACausalMask) {
  expect_right(attention_spec(4, 2, drawn(80, 110, 1), drawn(325, 335, 2), true));
}
TEST_F(Loops, OneQueryAndManyKeys) { expect_right(attention_spec(2, 2, 1, drawn(260, 330, 3), false)); }
}  // namespace flashbook::testing
