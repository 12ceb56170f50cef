#include "tests/exercises/ch03-fragments.cu"

namespace flashbook::testing {
TEST_F(Fragments, HeadDim96) { expect_scores<96, 104>(16 * drawn(1, 3, 1), 16 * drawn(2, 4, 2)); }
}  // namespace flashbook::testing
