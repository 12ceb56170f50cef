#include "tests/exercises/ch02-again.cpp"

namespace flashbook::testing {
TEST(Again, OfScoresFarBelowZero) {
  std::vector<float> scores = random_numbers(std::size_t(drawn(33, 90, 1)), 8);
  for (float& score : scores) score -= 300;
  expect_gradient(scores);
}
}  // namespace flashbook::testing
