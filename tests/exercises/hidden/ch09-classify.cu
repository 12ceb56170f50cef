#include "tests/exercises/ch09-classify.cu"

namespace flashbook::testing {
TEST_F(Classify, OfManyMasks) {
  for (int tokens : {24, 25, drawn(33, 47, 1)})
    for (int global : {0, 1, 6, 8, 13, 41})
      for (int window : {0, 1, 5, 7, 12, 50})
        if (!HasFailure()) expect_classes({tokens, global, window});
}
}  // namespace flashbook::testing
