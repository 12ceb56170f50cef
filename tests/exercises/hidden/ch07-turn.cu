#include "tests/exercises/ch07-turn.cu"

namespace flashbook::testing {
TEST_F(Turn, MeansOfManyTiles) { expect_means(drawn(4, 6, 1), drawn(3, 5, 2)); }
}  // namespace flashbook::testing
