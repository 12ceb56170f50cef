#include "tests/exercises/ch05-mask.cu"

namespace flashbook::testing {
TEST_F(Mask, OfATileOf80Keys) { expect_masked<80>(150, drawn(225, 235, 1), 72, 64, 80); }
TEST_F(Mask, OfChunksOfAFewKeys) { expect_masked<64>(77, drawn(185, 195, 2), 5, 64, 128); }
}  // namespace flashbook::testing
