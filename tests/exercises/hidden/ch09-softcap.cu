#include "tests/exercises/ch09-softcap.cu"

namespace flashbook::testing {
TEST_F(CappedGradient, OfOtherCaps) {
  for (float cap : {0.5f, 10.0f, 30.0f}) expect_gradient(drawn(15, 25, 1), drawn(65, 90, 2), cap, true);
}
}  // namespace flashbook::testing
