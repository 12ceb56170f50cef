#include "tests/exercises/ch06-overflow.cu"

namespace flashbook::testing {
TEST_F(Overflow, OfManyTiles) { expect_encoded({1, 2.9f, 0, 2.5f, 5, 6.8f, 7, 11, 10, 12.9f, 13, 9}); }
}  // namespace flashbook::testing
