#include "tests/exercises/ch05-descriptor.cu"

namespace flashbook::testing {
TEST_F(Descriptor, HeadDim256) { expect_products<256>(); }
}  // namespace flashbook::testing
