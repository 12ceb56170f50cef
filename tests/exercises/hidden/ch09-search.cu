#include "tests/exercises/ch09-search.cu"

namespace flashbook::testing {
TEST_F(Search, OfAnyNumber) {
  for (int count : {2, 31, 33, 63, 65, 1023, drawn(1025, 1100, 1)}) {
    expect_found(stairs(count, 12, 90));
    expect_found(stairs(count, 20, 3));
  }
}
}  // namespace flashbook::testing
