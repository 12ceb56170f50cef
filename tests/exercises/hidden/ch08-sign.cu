#include "tests/exercises/ch08-sign.cu"

namespace flashbook::testing {
TEST_F(Sign, TheLargestScoreInTheLastTile) {
  std::vector<float> scores = random_numbers(std::size_t(drawn(129, 190, 1)), 5);
  scores.back() = 60;
  expect_attention({scores});
}
}  // namespace flashbook::testing
