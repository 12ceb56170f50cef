/// \file
/// Requirements for every chapter of the forward pass, in addition to conformance.h: faults in K and V that
/// must be detected, and properties that need no oracle. A chapter's test file includes this instead.
#pragma once
#include "common/attention/bounds.h"
#include "tests/chapters/conformance.h"
#include "tests/support/faults.h"
#include "tests/support/specs.h"

namespace flashbook::testing {

// ---- faults that must be detected

/// The bound must distinguish wrong results from right ones, in every type and under every mask.
class Faults : public ChapterTest, public ::testing::WithParamInterface<bool> {};

TEST_P(Faults, OfVAndKShow) {
  for (DType dtype : chapter_under_test.dtypes) {
    const Spec spec = make_spec(200, 200, 64, GetParam(), dtype, 2, 2);
    int step = last_step();
    while (!chapter_under_test.step(step).is_for(spec)) --step;
    const Inputs inputs = make_inputs(spec, InputKind::normal, 27);
    const Reference reference = make_reference(spec, inputs, all_rows(spec));
    for (Fault fault : kFaults) {
      const Problem faulty = with_fault(spec, inputs, fault, 100);
      const CheckResult result =
          check(spec, reference, run_once(chapter_under_test, faulty.spec, faulty.inputs, step));
      EXPECT_FALSE(result.o.ok) << describe(spec) << ", " << name_of(fault) << ": error "
                                << result.o.max_error << ", bound " << result.o.bound;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Masks, Faults, ::testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "causal" : "full"); });

// ---- properties, which need no oracle

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

TEST_P(Properties, ValuesOfOneGiveOne) {
  Inputs inputs = make_inputs(spec(), InputKind::normal, 5);
  std::fill(inputs.v.begin(), inputs.v.end(), 1.0f);
  const Outputs outputs = run_once(chapter_under_test, spec(), inputs, step());
  // The sum of up to 150 rounded probabilities; rounding a probability to e4m3 changes it by at most a 16th.
  const float tolerance = spec().dtype == DType::e4m3 ? 0.0625f : 4e-3f;
  for (float value : outputs.o) ASSERT_NEAR(value, 1.0f, tolerance);
}

TEST_P(Properties, KeysInAnotherOrderGiveTheSame) {
  const Inputs inputs = make_inputs(spec(), InputKind::normal, 5);
  Inputs permuted = inputs;
  std::vector<int> order(spec().seqlen_k);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(17));
  const int dim = spec().head_dim, keys = spec().seqlen_k;
  for (int head = 0; head < spec().batch * spec().kv_heads; ++head)
    for (int key = 0; key < keys; ++key)
      for (int c = 0; c < dim; ++c) {
        const std::size_t to = (std::size_t(head) * keys + key) * dim + c;
        const std::size_t from = (std::size_t(head) * keys + order[key]) * dim + c;
        permuted.k[to] = inputs.k[from];
        permuted.v[to] = inputs.v[from];
      }
  const Reference reference = make_reference(spec(), inputs, all_rows(spec()));
  EXPECT_TRUE(check(spec(), reference, run_once(chapter_under_test, spec(), permuted, step())).ok());
}

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
    for (const int keys : {1, 2, 3})
      for (const bool causal : {false, true}) {
        Spec few = spec();
        few.seqlen_k = keys;
        few.visibility = Visibility::causal_if(causal);
        if (causal) few.seqlen_q = keys;
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

TEST_P(Properties, TheScaleIsAFactorOnTheScores) {
  // Doubling the scale equals doubling Q: multiplying by a power of two is exact.
  const Inputs inputs = make_inputs(spec(), InputKind::normal, 5);
  Inputs doubled = inputs;
  for (float& value : doubled.q) value *= 2;
  Spec twice = spec();
  twice.scale *= 2;
  const Outputs a = run_once(chapter_under_test, twice, inputs, step());
  const Outputs b = run_once(chapter_under_test, spec(), doubled, step());
  const Reference reference = make_reference(twice, inputs, all_rows(twice));
  EXPECT_TRUE(compare(twice, a, b, reference).ok());
}

INSTANTIATE_TEST_SUITE_P(Steps, Properties, ::testing::ValuesIn(steps_under_test()), slug_of);

}  // namespace flashbook::testing
