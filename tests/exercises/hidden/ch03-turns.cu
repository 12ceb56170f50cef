// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch03-turns.cu"

namespace flashbook::testing {
namespace {

TEST_F(Turns, OneKey) { expect_right(8, 1); }
TEST_F(Turns, KeysThatAreNoMultipleOfFour) { expect_right(16, 37); }

}  // namespace
}  // namespace flashbook::testing
