// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch08-sign.cu"

namespace flashbook::testing {
namespace {

TEST_F(Sign, TheLargestScoreInTheLastTile) {
  std::vector<float> scores = random_numbers(std::size_t(drawn(129, 190, 1)), 5);
  scores.back() = 60;
  expect_attention({scores});
}

}  // namespace
}  // namespace flashbook::testing
