// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch06-overflow.cu"

namespace flashbook::testing {
namespace {

TEST_F(Overflow, OfManyTiles) { expect_encoded({1, 2.9f, 0, 2.5f, 5, 6.8f, 7, 11, 10, 12.9f, 13, 9}); }

}  // namespace
}  // namespace flashbook::testing
