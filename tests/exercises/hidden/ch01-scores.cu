// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch01-scores.cu"

namespace flashbook::testing {
namespace {

TEST_F(Scores, OfGroupsUnderACausalMask) {
  expect_scores(
      6, 128,
      {.seqlen_q = 33, .seqlen_k = 47, .group = 3, .score_stride = 48, .causal = true, .scale = 0.7f});
}

TEST_F(Scores, OfQueriesThatSeeNoKey) {
  expect_scores(
      1, 64, {.seqlen_q = 37, .seqlen_k = 5, .group = 1, .score_stride = 8, .causal = true, .scale = 0.125f});
}

}  // namespace
}  // namespace flashbook::testing
