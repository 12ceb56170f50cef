#include "tests/exercises/ch01-scores.cu"

namespace flashbook::testing {
TEST_F(Scores, OfGroupsUnderACausalMask) {
  const int queries = drawn(33, 45, 1), keys = queries + drawn(5, 15, 2);
  expect_scores(6, 128,
                {.seqlen_q = queries,
                 .seqlen_k = keys,
                 .group = 3,
                 .score_stride = keys + 1,
                 .causal = true,
                 .scale = 0.7f});
}

TEST_F(Scores, OfQueriesThatSeeNoKey) {
  expect_scores(1, 64,
                {.seqlen_q = drawn(34, 45, 3),
                 .seqlen_k = drawn(3, 8, 4),
                 .group = 1,
                 .score_stride = 8,
                 .causal = true,
                 .scale = 0.125f});
}
}  // namespace flashbook::testing
