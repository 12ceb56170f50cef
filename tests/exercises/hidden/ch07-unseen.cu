#include "tests/exercises/ch07-unseen.cu"

namespace flashbook::testing {
TEST_F(Unseen, AsManyLengthsAsKeys) {
  expect_gradient(drawn(5, 12, 1), 17, {0, 1, drawn(2, 14, 2), 15, 16, 17});
}
}  // namespace flashbook::testing
