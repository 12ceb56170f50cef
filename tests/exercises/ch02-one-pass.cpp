#include "chapters/02_online_softmax/step3_one_pass_attention.h"
#include "tests/exercises/attention_rows.h"

namespace flashbook::testing {
namespace {

// The first to fail, so that nobody looks for this fault in the wrong file.
TEST(OnePass, HasAMergeRuleToStandOn) {
  SoftmaxState state;
  update(state, 1);
  update(state, 3);
  ASSERT_NEAR(observed(state).row_sum, 1.135335f, 1e-5) << "the merge rule is wrong: solve ch02-merge first";
}

TEST(OnePass, OfOneKey) { expect_row(attention_row_one_pass, {3}); }
TEST(OnePass, OfRisingScores) { expect_row(attention_row_one_pass, rising(100)); }
TEST(OnePass, OfFallingScores) { expect_row(attention_row_one_pass, falling(100)); }
TEST(OnePass, OfRandomScores) { expect_row(attention_row_one_pass, random_numbers(1000, 4, 3)); }
TEST(OnePass, OfScoresWhoseExponentialIsInfinite) {
  expect_row(attention_row_one_pass, random_numbers(50, 5, 1000));
}

}  // namespace
}  // namespace flashbook::testing
