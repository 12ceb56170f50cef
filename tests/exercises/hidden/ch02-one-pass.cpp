// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch02-one-pass.cpp"

namespace flashbook::testing {
namespace {

TEST(OnePass, OfScoresFarBelowZero) {
  std::vector<float> scores = random_numbers(200, 6, 4);
  for (float& score : scores) score -= 300;
  expect_row(attention_row_one_pass, scores);
}

TEST(OnePass, WhoseLastKeyOutweighsAllOthers) {
  std::vector<float> scores = random_numbers(64, 7);
  scores.back() = 60;
  expect_row(attention_row_one_pass, scores);
}

}  // namespace
}  // namespace flashbook::testing
