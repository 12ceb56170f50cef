#include "tests/exercises/ch04-rescale.cu"

namespace flashbook::testing {
TEST_F(Rescale, OfManyBlocks) {
  expect_rescaled<8, 4>([](int query) { return float(query) * 1.5f; });
}
TEST_F(Rescale, OfOneQueryOfTheWarp) {
  for (int rising = 0; rising < 8; ++rising)
    expect_rescaled<4, 1>([=](int query) { return query == rising ? 30.0f : 1.0f; });
}
}  // namespace flashbook::testing
