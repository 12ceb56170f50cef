#include "tests/exercises/ch02-one-pass.cpp"

namespace flashbook::testing {
TEST(OnePass, OfScoresFarBelowZero) {
  std::vector<float> scores = random_numbers(std::size_t(drawn(150, 250, 1)), 6, 4);
  for (float& score : scores) score -= 300;
  expect_seen(scores);
}

TEST(OnePass, OfFewerKeysThanSinks) {
  for (int keys = 1; keys <= kSinks; ++keys) expect_seen(random_numbers(std::size_t(keys), 7), 0, 1);
}
}  // namespace flashbook::testing
