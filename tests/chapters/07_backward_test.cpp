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

// A loss that reads the log-sum-exp.
TEST_F(ChapterTest, TheLogSumExpHasItsGradient) {
  for (int head_dim : {64, 128, 256}) {
    const Spec spec = spec_with(4, 2, 200, 130, head_dim, head_dim != 128);
    Inputs inputs = inputs_of(spec, InputKind::normal, 3);
    add_lse_gradient(spec, inputs);
    expect_right(spec, inputs);
    if (head_dim > 64) continue;
    std::ranges::fill(inputs.d_o, 0.0f);  // only the log-sum-exp has a gradient
    expect_right(spec, inputs);
  }
}

TEST_F(ChapterTest, OneVisibleKeyMovesNeitherQueriesNorKeys) {
  for (int head_dim : {64, 128, 256}) expect_one_key_moves_nothing(spec_with(2, 1, 130, 1, head_dim, false));
  expect_one_key_moves_nothing(spec_with(2, 1, 130, 1, 112, false), first_padded_step());
}

TEST_F(ChapterTest, EveryLaunchGivesTheSameBits) {
  for (int step = 1; step <= steps(); ++step)
    if (kBackward.steps[step - 1].same_bits) expect_same_bits(DType::bf16, step, 167);
}

}  // namespace
}  // namespace flashbook::testing
