// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch01-block-softmax.cu"

namespace flashbook::testing {
namespace {

TEST_F(BlockSoftmax, AroundTheSizeOfTheBlock) {
  for (int keys : {2, 31, 255, 257, 511}) expect_softmax(softmax, rows_of(keys, false));
}

TEST_F(BlockSoftmax, OfShortRowsInAnyOrderOfItsWarps) {
  for (int seed = 1; seed <= 5; ++seed) {
    const RandomWarpOrder order(seed);
    expect_softmax(softmax, rows_of(90, false), 1, -300);
  }
}

}  // namespace
}  // namespace flashbook::testing
