// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch08-sign.cu"

namespace flashbook::testing {
namespace {

TEST_F(Sign, TheLargestScoreInTheLastTile) {
  std::vector<float> scores = random_numbers(129, 5);
  scores.back() = 60;
  expect_attention({scores});
}

}  // namespace
}  // namespace flashbook::testing
