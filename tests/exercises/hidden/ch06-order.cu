#include "tests/exercises/ch06-order.cu"

namespace flashbook::testing {
TEST_F(Order, Of160Keys) { expect_random_order<160>(); }
}  // namespace flashbook::testing
