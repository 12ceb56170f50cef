// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch07-ds.cu"

namespace flashbook::testing {
namespace {

TEST_F(ScoreGradient, OfHeadsThatShareTheBias) { expect_ds<64>(3, 64, 64, false); }
TEST_F(ScoreGradient, OfTilesOf80Queries) { expect_ds<80>(2, 170, 60, true); }

}  // namespace
}  // namespace flashbook::testing
