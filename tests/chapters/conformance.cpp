// Compiled once for all chapters; a chapter's test file defines which chapter is under test.
#include "tests/chapters/conformance.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "common/app/call.h"
#include "common/app/expected.h"
#include "common/app/runner.h"
#include "tests/chapters/right.h"
#include "tests/support/cases.h"
#include "tests/support/masks.h"
#include "tests/support/specs.h"

namespace flashbook::testing {

void expect_right(const Spec& spec, const Inputs& inputs, int first_step) {
  expect_steps_right(chapter_under_test, operation_under_test, spec, inputs, first_step);
}

Inputs inputs_of(const Spec& spec, InputKind kind, uint64_t seed) {
  return make_inputs(operation_under_test, spec, kind, seed);
}

void add_lse_gradient(const Spec& spec, Inputs& inputs) {
  inputs.d_lse.resize(spec.q_rows());
  for (int64_t row = 0; row < spec.q_rows(); ++row)
    inputs.d_lse[row] = std::isfinite(inputs.lse[row]) ? float(row * 37 % 17 - 8) / 4 : std::nanf("");
}

void expect_one_key_moves_nothing(const Spec& spec, int first_step) {
  const Inputs inputs = inputs_of(spec, InputKind::normal, 9);
  for (const int step : steps_under_test()) {
    if (step < first_step) continue;
    const Outputs outputs = run_once(chapter_under_test, spec, inputs, step);
    for (const std::vector<float>* gradient : {&outputs.dq, &outputs.dk})
      for (const float value : *gradient) ASSERT_NEAR(value, 0, 2e-4) << "step " << step << describe(spec);
  }
}

void expect_same_bits(const Spec& spec, const Inputs& inputs, int step, int launches) {
  SCOPED_TRACE("step " + std::to_string(step) + ", " + describe(spec));
  const UploadedInputs uploaded(operation_under_test, spec, inputs, chapter_under_test.runs_on);
  Call call(chapter_under_test, spec, uploaded, step);
  std::vector<std::byte> first;
  for (int launch = 0; launch < launches; ++launch) {
    call.poison();
    call.run();
    std::vector<std::byte> now = call.download_bytes();
    if (launch == 0) first = now;
    ASSERT_TRUE(now == first) << "launch " << launch + 1;
  }
}

void expect_same_bits(DType dtype, int step, int launches_on_gpu) {
  const bool gpu = device::machine() == device::Machine::gpu;
  const int launches = gpu ? launches_on_gpu : 2;
  for (int head_dim : {64, 128, 256})
    for (bool causal : {false, true}) {
      if (!gpu && !causal) continue;
      const int heads = gpu ? 48 : 2;
      const Spec spec = make_spec(gpu ? 449 : 257, gpu ? 333 : 199, head_dim, causal, dtype, heads, heads);
      expect_same_bits(spec, inputs_of(spec, InputKind::normal, 5), step, launches);
    }
}

namespace {

/// A reader's run: every step, on generated inputs, compared with the oracle and the previous chapter.
class Program : public ChapterTest {};

TEST_F(Program, IsRightAndAgreesWithTheChapterBefore) {
  expect_program_right(chapter_under_test, chapter_before, operation_under_test);
}

// Every column at its widest, and every name.
TEST_F(Program, HasRowsThatFitATerminal) {
  for (const bool simulated : {true, false}) {
    Report report{
        .chapter = chapter_under_test.number, .machine = "-", .on_gpu = !simulated, .simulated = simulated};
    const TensorVerdict verdict{TensorId::o, {.ok = true, .max_error = 1e-3, .worst = ""}};
    for (int step = 1; step <= chapter_under_test.last_step(); ++step) {
      const Step& row = chapter_under_test.step(step);
      const CommittedRung* rung = committed_results().find(report.chapter, row.slug);
      report.steps.push_back({.step = step,
                              .slug = row.slug,
                              .name = row.name,
                              .shape = rung ? std::string(committed_results().shape_of(*rung).described) : "",
                              .flops = 1e15,
                              .memory_bytes = 9.99e9,
                              .requested_bytes = 9.99e9,
                              .workspace_bytes = 9.99e9,
                              .oracle = {verdict},
                              .seconds = 0.0999});
    }
    std::stringstream out;
    print_report(out, report);
    print_ladder(out, {report});
    for (std::string line; std::getline(out, line);) EXPECT_LE(line.size(), kColumns) << line;
  }
}

// ---- shapes

class Shapes : public ChapterTest, public ::testing::WithParamInterface<Spec> {};

TEST_P(Shapes, AgreeWithTheOracle) { expect_right(GetParam(), inputs_of(GetParam(), InputKind::normal, 7)); }

INSTANTIATE_TEST_SUITE_P(Pairwise, Shapes, ::testing::ValuesIn(pairwise_specs(chapter_under_test)),
                         [](const auto& info) { return name_of(info.param); });

/// The full cross product: `ctest -L full`.
class EveryShape : public Shapes {};

TEST_P(EveryShape, AgreesWithTheOracle) {
  expect_right(GetParam(), inputs_of(GetParam(), InputKind::normal, 11));
}

INSTANTIATE_TEST_SUITE_P(CrossProduct, EveryShape, ::testing::ValuesIn(every_spec(chapter_under_test)),
                         [](const auto& info) { return name_of(info.param); });

/// Every other quick shape with the simulator's warps in random order, which exposes kernels that depend on
/// the order.
class RandomOrder : public ChapterTest, public ::testing::WithParamInterface<int> {};

TEST_P(RandomOrder, OfWarpsChangesNothing) {
  const Spec spec = quick_specs(chapter_under_test)[2 * GetParam()];
  const RandomWarpOrder order(GetParam() + 1);
  expect_right(spec, inputs_of(spec, InputKind::normal, 13));
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomOrder, ::testing::Range(0, 4));

/// The traced build's tests, in which a data race or an access out of bounds is an error.
class Traced : public Shapes {};

TEST_P(Traced, BreaksNoRuleOfMemory) {
  expect_right(GetParam(), inputs_of(GetParam(), InputKind::normal, 19));
}

/// Quick shapes, and one with enough tiles to reuse every stage of a ring.
std::vector<Spec> traced_specs() {
  std::vector<Spec> specs = quick_specs(chapter_under_test, 64);
  const bool backward = operation_under_test == Operation::backward;
  specs.push_back(make_spec(backward ? 600 : 65, backward ? 65 : 600, 64, false, specs.front().dtype, 1, 1));
  return specs;
}

INSTANTIATE_TEST_SUITE_P(QuickShapes, Traced, ::testing::ValuesIn(traced_specs()),
                         [](const auto& info) { return name_of(info.param); });

// ---- difficult inputs

class Adversarial : public ChapterTest, public ::testing::WithParamInterface<InputKind> {};

TEST_P(Adversarial, InputsStayWithinTheBounds) {
  for (DType dtype : chapter_under_test.dtypes) {
    const Spec spec = make_spec(100, 131, 64, true, dtype, 2, 1);
    expect_right(spec, inputs_of(spec, GetParam(), 3));
  }
}

// A score of 10000 that plain attention computes without rounding. Multiplying a factor into Q beforehand
// would make every product inexact, all in the same direction.
TEST_F(ChapterTest, ExactScoresOfTenThousandStayWithinTheBounds) {
  for (int head_dim : {64, 128, 256}) {
    const Spec spec = make_spec(65, 65, head_dim, false, chapter_under_test.dtypes.front());
    Inputs inputs = make_inputs(spec, InputKind::normal, 9);
    std::fill(inputs.q.begin(), inputs.q.end(), 25.0f);
    std::fill(inputs.k.begin(), inputs.k.end(), 25.0f);
    round_inputs(spec, inputs);  // e4m3 has 24, and scores of 9216
    complete_inputs(operation_under_test, spec, 9, inputs);
    expect_right(spec, inputs);
  }
}

// The same, far beyond where floats have fractions: rounding the scaled maximum must lose the same for every
// key in every tile.
TEST_F(ChapterTest, ExactScoresOfAHundredMillionStayWithinTheBounds) {
  if (right_up_to(operation_under_test, chapter_under_test.dtypes.front()) <= 0x1p16f)
    return;  // rejected, as the next test checks
  for (int head_dim : {64, 128, 256}) {
    Spec spec = make_spec(20, 300, head_dim, false, chapter_under_test.dtypes.front());
    spec.scale *= 1.1f;
    Inputs inputs = make_inputs(spec, InputKind::normal, 9);
    std::fill(inputs.q.begin(), inputs.q.end(), 4096.0f);
    std::fill(inputs.k.begin(), inputs.k.end(), 4096.0f);
    expect_right(spec, inputs);
  }
}

// The largest scores that a chapter supports: where twice a float's rounding error exceeds any exponent, and
// the limit.
TEST_F(ChapterTest, LargeScoresAreRightOrRefused) {
  for (DType dtype : chapter_under_test.dtypes)
    for (int head_dim : {64, 256})
      for (float largest : {0x1p15f, 0x1p34f, 0x1p126f}) {
        Spec spec = make_spec(40, 150, head_dim, head_dim == 64, dtype);
        spec.scale = 1;
        spec.scale = largest / float(largest_score(spec, make_inputs(spec, InputKind::normal, 21)));
        if (largest <= right_up_to(operation_under_test, dtype)) {
          expect_right(spec, inputs_of(spec, InputKind::normal, 21));
          continue;
        }
        Options options;
        options.spec = spec;
        options.seed = 21;
        options.operation = operation_under_test;
        options.steps = {last_step()};
        EXPECT_THROW(run(options, chapter_under_test, nullptr), InputError) << describe(spec);
      }
}

INSTANTIATE_TEST_SUITE_P(Inputs, Adversarial,
                         ::testing::Values(InputKind::outliers, InputKind::large_scores, InputKind::one_hot,
                                           InputKind::all_equal));

// ---- the descriptor

TEST(Descriptor, SaysWhatTheContractAsksFor) {
  const Chapter& chapter = chapter_under_test;
  EXPECT_EQ(std::string(chapter.name).substr(0, 2),
            (chapter.number < 10 ? "0" : "") + std::to_string(chapter.number));
  ASSERT_FALSE(chapter.steps.empty());
  for (const Step& step : chapter.steps) EXPECT_TRUE(std::string(step.idea).ends_with('.')) << step.name;
  for (const Spec& spec : {chapter.gpu_spec, chapter.cpu_spec}) {
    EXPECT_NO_THROW(validate(spec));
    for (int step : steps_under_test())
      EXPECT_EQ(chapter.refusal(step, spec).empty(), chapter.step(step).is_for(spec)) << step;
  }
}

/// Every feature, in a problem with no other: a step computes it or rejects it by name. Packed
/// queries and ranks have their own tests where they are accepted.
TEST_F(ChapterTest, ComputesOrRefusesEachFeature) {
  const Chapter& chapter = chapter_under_test;
  constexpr Features kElsewhere = Feature::packed_queries | Feature::ranks | Feature::token_order;
  int refused = 0;
  for (int step : steps_under_test()) {
    const Step& asked = chapter.step(step);
    Spec plain = chapter.cpu_spec;
    plain.sharding.ranks = 1;
    plain.seqlen_k = std::min(plain.seqlen_k, 300);
    if (plain.seqlen_q > 1) plain.seqlen_q = 70, plain.seqlen_k = 70;
    for (const Feature needed : {Feature::latent, Feature::e4m3_cache, Feature::indices})
      if (asked.needs.has(needed)) plain = with_feature(needed, plain);
    for (int bit = 0; bit < int(Feature::unknown); ++bit) {
      const Feature feature = Feature(bit);
      if (features_of(plain).has(feature)) continue;
      const Spec spec = with_feature(feature, plain);
      ASSERT_TRUE(features_of(spec).has(feature)) << definition_of(feature).plural;
      const Features unknown = asked.unknown_in(spec);
      const std::string reason = chapter.refusal(step, spec);
      if (!unknown.empty()) {
        ++refused;
        EXPECT_NE(reason.find("does not support"), std::string::npos)
            << step << definition_of(feature).plural;
        if (unknown == feature) {
          EXPECT_NE(reason.find(definition_of(feature).plural), std::string::npos) << step << reason;
        }
        continue;
      }
      if (!reason.empty() || kElsewhere.has(feature)) continue;
      SCOPED_TRACE("step " + std::to_string(step) + ", " + describe(spec));
      validate(spec);
      const Inputs inputs = inputs_of(spec, InputKind::normal, 3);
      const Expected expected(operation_under_test, spec, inputs, all_rows(spec));
      EXPECT_EQ(describe_failure(expected.judge(run_once(chapter, spec, inputs, step)), "the oracle"), "");
    }
  }
  EXPECT_GT(refused, 0);
}

/// A new feature is in no step's `accepts`, so each step rejects it by default.
TEST(Descriptor, AcceptsNoFeatureThatItDoesNotName) {
  for (const Step& step : chapter_under_test.steps) EXPECT_FALSE(step.knows(Feature::unknown)) << step.name;
}

}  // namespace
}  // namespace flashbook::testing
