#include "tests/exercises/ch05-ring.cu"

namespace flashbook::testing {
TEST_F(Ring, OfOneStage) { expect_sums<1, 1>(1, drawn(4, 7, 1)); }
TEST_F(Ring, OfFiveStagesAndThreeConsumers) { expect_sums<5, 3>(2, drawn(12, 18, 2)); }
}  // namespace flashbook::testing
