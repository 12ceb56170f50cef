#include "tests/exercises/ch08-merge.cu"

namespace flashbook::testing {
TEST_F(MergeRow, HeadDim256) { expect_merged<256>(with_empty(2 * 128, 6, 7), {4, 0}); }
}  // namespace flashbook::testing
