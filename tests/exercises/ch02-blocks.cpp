#include "chapters/02_online_softmax/exercises/row_in_blocks.h"
#include "tests/exercises/attention_rows.h"

namespace flashbook::testing {
namespace {

TEST(RowInBlocks, OfOneBlock) { expect_row(attention_row_in_blocks, random_numbers(kBlock, 1)); }
TEST(RowInBlocks, OfAPartOfABlock) { expect_row(attention_row_in_blocks, rising(5)); }
TEST(RowInBlocks, OfFallingScores) { expect_row(attention_row_in_blocks, falling(100)); }
TEST(RowInBlocks, OfRisingScores) { expect_row(attention_row_in_blocks, rising(100)); }
TEST(RowInBlocks, OfRandomScores) { expect_row(attention_row_in_blocks, random_numbers(1000, 2, 3)); }
TEST(RowInBlocks, OfScoresWhoseExponentialIsInfinite) {
  std::vector<float> scores = rising(50);
  for (float& score : scores) score *= 1000;
  expect_row(attention_row_in_blocks, scores);
}

}  // namespace
}  // namespace flashbook::testing
