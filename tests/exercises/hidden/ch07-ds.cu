#include "tests/exercises/ch07-ds.cu"

namespace flashbook::testing {
TEST_F(ScoreGradient, OfHeadsThatShareTheBias) { expect_ds<64>(drawn(2, 4, 1), 64, 64, false); }
TEST_F(ScoreGradient, OfTilesOf80Queries) { expect_ds<80>(2, drawn(165, 235, 2), drawn(50, 62, 3), true); }
}  // namespace flashbook::testing
