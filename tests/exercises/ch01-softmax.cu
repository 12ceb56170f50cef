#include "chapters/01_naive_attention/step1_textbook.cuh"
#include "tests/exercises/softmax_rows.h"

namespace flashbook::testing {
namespace {

class Softmax : public MachineTest {};

void softmax(const float* scores, float* probabilities, float* lse, int rows, naive::Problem problem) {
  run(naive::textbook_softmax<float>, dim3(unsigned(rows + 255) / 256), dim3(256), 0, scores, probabilities,
      lse, int64_t(rows), problem);
}

TEST_F(Softmax, OfWholeRows) {
  expect_softmax(
      softmax,
      {.seqlen_q = 5, .seqlen_k = 100, .group = 1, .score_stride = 100, .causal = false, .scale = 1});
}

TEST_F(Softmax, LooksOnlyAtWhatTheMaskLeaves) {
  expect_softmax(
      softmax,
      {.seqlen_q = 300, .seqlen_k = 300, .group = 1, .score_stride = 304, .causal = true, .scale = 1});
}

TEST_F(Softmax, OfScoresWhoseExponentialIsInfinite) {
  expect_softmax(softmax,
                 {.seqlen_q = 4, .seqlen_k = 50, .group = 1, .score_stride = 50, .causal = false, .scale = 1},
                 1000);
}

TEST_F(Softmax, OfScoresFarBelowZero) {
  expect_softmax(softmax,
                 {.seqlen_q = 7, .seqlen_k = 31, .group = 1, .score_stride = 32, .causal = false, .scale = 1},
                 1, -1000);
}

TEST_F(Softmax, OfARowThatSeesNoKey) {
  expect_softmax(softmax,
                 {.seqlen_q = 9, .seqlen_k = 6, .group = 1, .score_stride = 8, .causal = true, .scale = 1});
}

}  // namespace
}  // namespace flashbook::testing
