#include "tests/exercises/ch04-wait.cu"

namespace flashbook::testing {
TEST_F(Wait, ManyHeadsOfFewRows) { expect_means(drawn(7, 11, 1), drawn(3, 31, 2)); }
TEST_F(Wait, OneRowBeyondATile) { expect_means(drawn(2, 4, 3), 129); }
}  // namespace flashbook::testing
