#include "tests/exercises/ch06-means.cu"

namespace flashbook::testing {
TEST_F(Means, HeadDim256) { expect_random_means<256>(drawn(2, 5, 1)); }
}  // namespace flashbook::testing
