#include "tests/exercises/ch07-adder.cu"

namespace flashbook::testing {
TEST_F(Adder, OfSeveralHeads) { expect_sums(drawn(2, 4, 1), drawn(3, 5, 2), 0); }
}  // namespace flashbook::testing
