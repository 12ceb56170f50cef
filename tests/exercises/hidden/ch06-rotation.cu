// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch06-rotation.cu"

namespace flashbook::testing {
namespace {

TEST_F(Rotation, HeadDim256) { expect_random_rotated<256>(); }

}  // namespace
}  // namespace flashbook::testing
