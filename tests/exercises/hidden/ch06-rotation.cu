#include "tests/exercises/ch06-rotation.cu"

namespace flashbook::testing {
TEST_F(Rotation, HeadDim256) { expect_random_rotated<256>(); }
}  // namespace flashbook::testing
