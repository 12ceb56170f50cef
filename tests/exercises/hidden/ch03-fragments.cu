// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch03-fragments.cu"

namespace flashbook::testing {
namespace {

TEST_F(Fragments, HeadDim96) { expect_scores<96, 104>(16 * drawn(1, 3, 1), 16 * drawn(2, 4, 2)); }

}  // namespace
}  // namespace flashbook::testing
