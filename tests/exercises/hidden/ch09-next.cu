#include "tests/exercises/ch09-next.cu"

namespace flashbook::testing {
TEST_F(Next, OfAnyLengths) { expect_scaled({3, drawn(66, 127, 1), 31, 32, 33, 1, 64, 65, drawn(2, 30, 2)}); }
}  // namespace flashbook::testing
