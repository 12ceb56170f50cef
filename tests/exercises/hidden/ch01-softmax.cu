// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch01-softmax.cu"

namespace flashbook::testing {
namespace {

TEST_F(Softmax, OfScoresBelowAnyGuess) {  // a maximum may not begin at any number that seems low enough
  expect_softmax(softmax,
                 {.seqlen_q = 9, .seqlen_k = 23, .group = 1, .score_stride = 24, .causal = true, .scale = 1},
                 1, -1e5f);
}

TEST_F(Softmax, OfMoreRowsThanABlock) {
  expect_softmax(
      softmax, {.seqlen_q = 513, .seqlen_k = 19, .group = 1, .score_stride = 19, .causal = true, .scale = 1},
      3);
}

}  // namespace
}  // namespace flashbook::testing
