/// \file
/// For chapters whose kernels pad head dimensions between 64, 128 and 256. A chapter's test file includes
/// this after layouts.h, and defines the first step that pads.
#pragma once
#include "tests/chapters/layouts.h"

namespace flashbook::testing {

/// The first step under test that pads.
extern const char* const first_padded_slug;
inline int first_padded_step() { return chapter_under_test.place(first_padded_slug); }

/// Head dimensions that fill a panel with zeros wholly, in part or not at all, for each tile size.
constexpr int kPaddedDims[] = {8, 40, 72, 96, 136, 192, 248};

inline Spec padded_spec(int seqlen_q, int seqlen_k, int head_dim, bool causal) {
  return make_spec(seqlen_q, seqlen_k, head_dim, causal, DType::bf16, 2, 1);
}

class Padded : public ChapterTest, public ::testing::WithParamInterface<int> {
 protected:
  void expect_padded_right(int seqlen_q, int seqlen_k, bool causal) const {
    const Spec spec = padded_spec(seqlen_q, seqlen_k, GetParam(), causal);
    expect_right(spec, inputs_of(spec, InputKind::normal, 7), first_padded_step());
  }
};

TEST_P(Padded, AgreesWithTheOracle) {
  expect_padded_right(70, 150, false);
  expect_padded_right(150, 200, true);
  expect_padded_right(90, 30, true);  // the first queries see nothing
  expect_padded_right(1, 1, false);
}

// The gaps around input rows are NaN, and those around output rows must stay unchanged. The first step runs
// one head dimension for each tile size, and the last step the others.
TEST_P(Padded, ReadsAndWritesItsColumnsOnly) {
  const RandomWarpOrder order(GetParam());
  const int step = GetParam() == 8 || GetParam() % 32 == 0 ? first_padded_step() : last_step();
  Spec spec = padded_spec(131, 131, GetParam(), step % 2 == 0);
  spec.batch = 2;
  expect_layouts_agree(spec, step);
}

INSTANTIATE_TEST_SUITE_P(HeadDims, Padded, ::testing::ValuesIn(kPaddedDims));

class TracedPadded : public ChapterTest {};

TEST_F(TracedPadded, BreaksNoRuleOfMemory) {
  const Spec spec = padded_spec(70, 131, 40, true);
  expect_right(spec, inputs_of(spec, InputKind::normal, 7), first_padded_step());
}

TEST_F(ChapterTest, OtherHeadDimensionsAreRefused) {
  for (int step : steps_under_test()) {
    const std::string reason = chapter_under_test.refusal(step, padded_spec(10, 10, 96, false));
    EXPECT_EQ(reason.empty(), step >= first_padded_step()) << step << reason;
    EXPECT_TRUE(reason.empty() || reason.find("head dimensions") != std::string::npos) << reason;
  }
  for (int head_dim : {0, 4, 100, 264}) {
    Spec spec = padded_spec(10, 10, 64, false);
    spec.set_head_dim(head_dim);
    EXPECT_THROW(validate(spec), InputError) << head_dim;
  }
}

}  // namespace flashbook::testing
