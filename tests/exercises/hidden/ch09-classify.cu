// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch09-classify.cu"

namespace flashbook::testing {
namespace {

TEST_F(Classify, OfManyMasks) {
  for (int left : {0, 1, 7, 8, 30, kAll})
    for (int right : {0, 5, kAll})
      for (int head : {0, 1, 8, 13}) {
        expect_classes({left, right, head, 0}, 25, 33);
        expect_classes({left, right, 0, head}, 41, 25);
      }
}

}  // namespace
}  // namespace flashbook::testing
