/// \file
/// Requirements for every chapter of the forward pass, in addition to conformance.h. A chapter's test file
/// includes this instead.
#pragma once
#include "common/attention/bounds.h"
#include "tests/chapters/conformance.h"
#include "tests/support/specs.h"

namespace flashbook::testing {

class Properties : public ChapterTest, public ::testing::WithParamInterface<int> {
 protected:
  int step() const { return GetParam(); }
  Spec spec() const {
    Spec spec = make_spec(70, 150, 64, false, chapter_under_test.dtypes.front(), 4, 2);
    spec.batch = 2;
    if (!chapter_under_test.step(step()).is_for(spec)) spec.dtype = DType::bf16;
    return spec;
  }
};

TEST_P(Properties, RowsThatSeeNoKeyAreZero) {
  Spec blind = spec();
  blind.visibility = Visibility::causal();
  blind.seqlen_k = 30;  // queries 0 ... 39 of 70 see none of the 30 keys
  const Outputs outputs =
      run_once(chapter_under_test, blind, make_inputs(blind, InputKind::normal, 5), step());
  for (int64_t row = 0; row < blind.q_rows(); ++row) {
    const bool sees_some = row % blind.seqlen_q >= 40;
    EXPECT_EQ(std::isfinite(outputs.lse[row]), sees_some) << "row " << row;
    if (sees_some) continue;
    EXPECT_EQ(outputs.lse[row], -std::numeric_limits<float>::infinity());
    for (int c = 0; c < blind.head_dim; ++c)
      ASSERT_EQ(outputs.o[row * blind.head_dim + c], 0.0f) << "row " << row;
  }
}

// A row with few keys has a few large probabilities, whose rounding errors do not average out.
// FlashAttention's own tests allow at most twice the error of PyTorch in O; bounds per row are wider here.
TEST_P(Properties, FewKeysErrAtMostTwiceAsMuchAsPlain) {
  for (const DType dtype : chapter_under_test.dtypes) {
    if (dtype != DType::f16 && dtype != DType::bf16) continue;
    for (const int keys : {1, 2, 3}) {
      Spec few = spec();
      few.seqlen_k = keys;
      few.dtype = dtype;
      if (!chapter_under_test.refusal(step(), few).empty()) continue;
      const Inputs inputs = make_inputs(few, InputKind::normal, 8);
      const Reference reference = make_reference(few, inputs, all_rows(few));
      const Outputs outputs = run_once(chapter_under_test, few, inputs, step());
      EXPECT_TRUE(check(few, reference, outputs).ok()) << describe(few);
      const double most = 2 * largest_error(reference.o, reference.plain_o) + 1e-5;
      EXPECT_LE(largest_error(reference.o, outputs.o), most) << describe(few);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, Properties, ::testing::ValuesIn(steps_under_test()), slug_of);

}  // namespace flashbook::testing
