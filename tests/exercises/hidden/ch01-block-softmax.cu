#include "tests/exercises/ch01-block-softmax.cu"

namespace flashbook::testing {
TEST_F(BlockSoftmax, AroundTheSizeOfTheBlock) {
  for (int keys : {2, 31, 255, 257, drawn(300, 511, 1)}) expect_softmax(softmax, rows_of(keys, false));
}

TEST_F(BlockSoftmax, OfShortRowsInAnyOrderOfItsWarps) {
  expect_softmax_in_any_order(5, drawn(66, 120, 2), -300);
}
}  // namespace flashbook::testing
