#include "tests/exercises/ch07-delta.cu"

namespace flashbook::testing {
TEST_F(Delta, OfOtherHeadDims) {
  for (int head_dim : {8, 72, 96, 192}) expect_delta(3, drawn(40, 60, 1), head_dim, 8 * drawn(1, 4, 2));
}
}  // namespace flashbook::testing
