// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch07-adder.cu"

namespace flashbook::testing {
namespace {

TEST_F(Adder, OfSeveralHeads) { expect_sums(drawn(2, 4, 1), drawn(3, 5, 2), 0); }

}  // namespace
}  // namespace flashbook::testing
