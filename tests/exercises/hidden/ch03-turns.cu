#include "tests/exercises/ch03-turns.cu"

namespace flashbook::testing {
TEST_F(Turns, OneKey) { expect_right(8, 1); }
TEST_F(Turns, KeysThatAreNoMultipleOfFour) { expect_right(16, 4 * drawn(7, 11, 1) + drawn(1, 3, 2)); }
}  // namespace flashbook::testing
