#include <algorithm>

#include "chapters/07_backward/host/chapter.h"
#include "tests/chapters/layouts.h"
#include "tests/chapters/padded.h"
#include "tests/support/specs.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kBackward;
const Operation operation_under_test = Operation::backward;
const Chapter* const chapter_before = nullptr;
const char* const first_padded_slug = "wgmma";

namespace {

int steps() { return int(kBackward.steps.size()); }

Spec spec_with(int heads, int kv_heads, int seqlen_q, int seqlen_k, int head_dim, bool causal) {
  return make_spec(seqlen_q, seqlen_k, head_dim, causal, DType::bf16, heads, kv_heads);
}

// Groups of three heads, not a power of two, whose sums go to one key head.
TEST_F(ChapterTest, GroupsOfThree) {
  for (int head_dim : {64, 128, 256})
    for (bool causal : {false, true}) {
      const Spec spec = spec_with(6, 2, 100, 70, head_dim, causal);
      expect_right(spec, inputs_of(spec, InputKind::normal, 3));
    }
}

// A loss that reads the log-sum-exp.
TEST_F(ChapterTest, TheLogSumExpHasItsGradient) {
  for (int head_dim : {64, 128, 256})
    for (bool causal : {false, true}) {
      const Spec spec = spec_with(4, 2, 200, 130, head_dim, causal);
      Inputs inputs = inputs_of(spec, InputKind::normal, 3);
      add_lse_gradient(spec, inputs);
      expect_right(spec, inputs);
      std::ranges::fill(inputs.d_o, 0.0f);  // only the log-sum-exp has a gradient
      expect_right(spec, inputs);
    }
}

TEST_F(ChapterTest, OneVisibleKeyMovesNeitherQueriesNorKeys) {
  for (int head_dim : {64, 128, 256}) expect_one_key_moves_nothing(spec_with(2, 1, 130, 1, head_dim, false));
  for (int head_dim : {40, 112, 200})
    expect_one_key_moves_nothing(spec_with(2, 1, 130, 1, head_dim, false), first_padded_step());
}

TEST_F(ChapterTest, EveryLaunchGivesTheSameBits) {
  for (int step = 1; step <= steps(); ++step)
    if (kBackward.steps[step - 1].same_bits) expect_same_bits(DType::bf16, step, 167);
}

}  // namespace
}  // namespace flashbook::testing
