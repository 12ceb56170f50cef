// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch07-adder.cu"

namespace flashbook::testing {
namespace {

TEST_F(Adder, OfSeveralHeads) { expect_sums(3, 4, 0); }

}  // namespace
}  // namespace flashbook::testing
