// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch09-next.cu"

namespace flashbook::testing {
namespace {

TEST_F(Next, OfAnyLengths) { expect_scaled({3, drawn(66, 127, 1), 31, 32, 33, 1, 64, 65, drawn(2, 30, 2)}); }

}  // namespace
}  // namespace flashbook::testing
