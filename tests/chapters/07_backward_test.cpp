#include <algorithm>
#include <cmath>

#include "chapters/07_backward/host/chapter.h"
#include "tests/chapters/layouts.h"
#include "tests/chapters/padded.h"
#include "tests/support/shapes.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kBackward;
const Operation operation_under_test = Operation::backward;
const Chapter* const chapter_before = nullptr;
const int first_padded_step = 3;

namespace {

int steps() { return int(kBackward.steps.size()); }

Shape shape_with(int heads, int kv_heads, int seqlen_q, int seqlen_k, int head_dim, bool causal) {
  return make_shape(seqlen_q, seqlen_k, head_dim, causal, DType::bf16, heads, kv_heads);
}

bool all_zero(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float value) { return value == 0; });
}

TEST(Backward, SaysWhatItCannotRun) {
  Shape f32 = shape_with(1, 1, 1, 1, 64, false);
  EXPECT_EQ(kBackward.refusal(1, shape_with(1, 1, 1, 1, 64, false)), "");
  f32.dtype = DType::f32;
  EXPECT_NE(kBackward.refusal(1, f32).find("float32 tensors"), std::string::npos);
  EXPECT_NE(kBackward.refusal(1, shape_with(1 << 16, 1 << 16, 1 << 22, 1, 64, false)).find("--batch"),
            std::string::npos);
}

// With four times as many tokens, a step keeps four times as much memory, not sixteen times.
TEST(Backward, KeepsNothingOfTheSizeOfTheScores) {
  for (int step = 1; step <= steps(); ++step)
    for (int head_dim : {64, 128, 256}) {
      const auto bytes = [&](int n) {
        return double(kBackward.step(step).workspace_bytes(shape_with(2, 2, n, n, head_dim, true)));
      };
      EXPECT_LE(bytes(16384), 4.01 * bytes(4096)) << "step " << step;
      // The log-sum-exp and D, and at most dQ, dK and dV in float32.
      EXPECT_LE(bytes(16384), 2 * 16384 * (3.0 * head_dim + 3) * 4) << "step " << step;
    }
}

// Groups of three heads, not a power of two, whose sums go to one key head.
TEST_F(ChapterTest, GroupsOfThree) {
  for (int head_dim : {64, 128, 256})
    for (bool causal : {false, true}) {
      const Shape shape = shape_with(6, 2, 100, 70, head_dim, causal);
      expect_right(shape, inputs_of(shape, InputKind::normal, 3));
    }
}

// Under a causal mask with fewer keys than queries, the first queries see nothing; with more keys than
// queries, every key is seen. Another mask ends before the last keys, so that no query sees them. Gradients
// are written for both.
TEST_F(ChapterTest, WhatIsNotSeenHasZeros) {
  for (int step = 1; step <= steps(); ++step)
    for (int head_dim : {64, 128, 256}) {
      const Shape shape = shape_with(2, 1, 200, 30, head_dim, true);
      const Outputs outputs = run_once(kBackward, shape, inputs_of(shape, InputKind::normal, 5), step);
      for (int head = 0; head < 2; ++head)
        for (int i = 0; i < 170 * head_dim; ++i)
          ASSERT_EQ(outputs.dq[int64_t(head) * 200 * head_dim + i], 0.0f) << "step " << step;
    }
}

// A loss that reads the log-sum-exp.
TEST_F(ChapterTest, TheLogSumExpHasItsGradient) {
  for (int head_dim : {64, 128, 256})
    for (bool causal : {false, true}) {
      const Shape shape = shape_with(4, 2, 200, 130, head_dim, causal);
      Inputs inputs = inputs_of(shape, InputKind::normal, 3);
      add_lse_gradient(shape, inputs);
      expect_right(shape, inputs);
      std::ranges::fill(inputs.d_o, 0.0f);  // only the log-sum-exp has a gradient
      expect_right(shape, inputs);
    }
}

// A zero gradient gives zeros: every product has dO or dS in it.
TEST_F(ChapterTest, NoGradientComesOfNoGradient) {
  for (int step = 1; step <= steps(); ++step) {
    const Shape shape = shape_with(4, 2, 130, 190, 128, true);
    Inputs inputs = inputs_of(shape, InputKind::normal, 5);
    std::ranges::fill(inputs.d_o, 0.0f);
    const Outputs outputs = run_once(kBackward, shape, inputs, step);
    EXPECT_TRUE(all_zero(outputs.dq) && all_zero(outputs.dk) && all_zero(outputs.dv)) << "step " << step;
  }
}

// dO with a single one: dV is a column of P.
TEST_F(ChapterTest, AGradientOfOneElement) {
  for (int head_dim : {64, 256}) {
    const Shape shape = shape_with(2, 2, 90, 150, head_dim, false);
    Inputs inputs = inputs_of(shape, InputKind::normal, 6);
    std::ranges::fill(inputs.d_o, 0.0f);
    inputs.d_o[(90 + 77) * head_dim + 13] = 1;
    expect_right(shape, inputs);
  }
}

TEST_F(ChapterTest, OneVisibleKeyMovesNeitherQueriesNorKeys) {
  for (int head_dim : {64, 128, 256}) expect_one_key_moves_nothing(shape_with(2, 1, 130, 1, head_dim, false));
  for (int head_dim : {40, 112, 200})
    expect_one_key_moves_nothing(shape_with(2, 1, 130, 1, head_dim, false), first_padded_step);
}

// P's rows sum to 1, so dV summed over keys equals dO summed over queries.
TEST_F(ChapterTest, OverAllKeysGradientsOfValuesSumToThatOfO) {
  const Shape shape = shape_with(1, 1, 150, 333, 64, false);
  const Inputs inputs = inputs_of(shape, InputKind::normal, 8);
  for (int step = 1; step <= steps(); ++step) {
    const Outputs outputs = run_once(kBackward, shape, inputs, step);
    for (int c = 0; c < 64; ++c) {
      double dv = 0, d_o = 0;
      for (int j = 0; j < 333; ++j) dv += outputs.dv[j * 64 + c];
      for (int i = 0; i < 150; ++i) d_o += inputs.d_o[i * 64 + c];
      ASSERT_NEAR(dv, d_o, 0.1) << "step " << step << ", dim " << c;
    }
  }
}

TEST_F(ChapterTest, EveryLaunchGivesTheSameBits) {
  for (int step = 1; step <= steps(); ++step)
    if (kBackward.steps[step - 1].same_bits) expect_same_bits(DType::bf16, step, 167);
}

}  // namespace
}  // namespace flashbook::testing
