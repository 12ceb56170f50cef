#include "tests/exercises/ch10-buffer.cu"

namespace flashbook::testing {
TEST_F(RingSum, OfAnyNumberOfRanks) {
  for (unsigned seed = 1; seed <= 6; ++seed)
    expect_sum(drawn(4, 7, seed), drawn(20, 200, seed + 10), Async::random, seed);
}
}  // namespace flashbook::testing
