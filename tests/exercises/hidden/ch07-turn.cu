// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch07-turn.cu"

namespace flashbook::testing {
namespace {

TEST_F(Turn, MeansOfManyTiles) { expect_means(drawn(4, 6, 1), drawn(3, 5, 2)); }

}  // namespace
}  // namespace flashbook::testing
