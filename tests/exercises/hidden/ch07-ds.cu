// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch07-ds.cu"

namespace flashbook::testing {
namespace {

using Shared = backward::KeyCut<256, 8, 2, 1, 64, 1>;

TEST_F(ScoreGradient, OfHeadDim256) { expect_gradients<Shared>(100, 70, true); }
TEST_F(ScoreGradient, OfMoreQueriesThanKeys) { expect_gradients<Narrow>(170, 60, true); }

}  // namespace
}  // namespace flashbook::testing
