#include "tests/exercises/ch02-blocks.cpp"

namespace flashbook::testing {
TEST(RowInBlocks, WhoseMaximumIsInTheLastBlock) {
  for (int keys : {17, 33, drawn(34, 63, 1), 64}) {
    std::vector<float> scores = random_numbers(std::size_t(keys), 6);
    scores.back() = 5;
    expect_row(attention_row_in_blocks, scores);
  }
}

TEST(RowInBlocks, OfScoresFarBelowZero) {
  std::vector<float> scores = rising(drawn(60, 80, 2));
  for (float& score : scores) score -= 300;
  expect_row(attention_row_in_blocks, scores);
}
}  // namespace flashbook::testing
