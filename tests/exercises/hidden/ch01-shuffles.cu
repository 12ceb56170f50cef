#include "tests/exercises/ch01-shuffles.cu"

namespace flashbook::testing {
TEST_F(Shuffles, WhereAllLanesButOneSawNothing) {
  for (int lane = 0; lane < 32; ++lane) {  // the other row sees no key
    std::vector<float> scores(32, -INFINITY);
    scores[std::size_t(lane)] = float(-drawn(5, 50, 1));
    expect_largest(scores, true, true);
  }
}

TEST_F(Shuffles, OfEightWarps) {
  std::vector<float> values(256);
  for (int thread = 0; thread < 256; ++thread)
    values[std::size_t(thread)] = float(1 << (thread % drawn(19, 23, 2)));
  expect_sums(values);
}
}  // namespace flashbook::testing
