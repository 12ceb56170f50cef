#include "tests/exercises/ch08-boxes.cu"

namespace flashbook::testing {
TEST_F(Boxes, SequencesOfAnyLength) {
  for (int page_keys : {8, 32, 256}) {
    const int length = 64 * drawn(2, 4, unsigned(page_keys)) + drawn(1, 7, 1);
    expect_brought({length, 3, length - 64}, page_keys,
                   backwards(3 * ((length + page_keys - 1) / page_keys)));
  }
}
}  // namespace flashbook::testing
