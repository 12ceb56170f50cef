// Every other test relies on the checker, so this one gives it every kind of wrong output.
#include "common/attention/check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "common/attention/inputs.h"

namespace flashbook {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A right answer for 2 x 2 heads with 6 queries; each head's first two see no key. Bounds are small.
struct Check : ::testing::Test {
  Spec spec{{.batch = 2, .heads = 2, .seqlen_q = 6, .seqlen_k = 4}, Visibility::causal()};
  Reference reference = make_reference(spec, make_inputs(spec, InputKind::normal, 1), all_rows(spec));
  Outputs right{{reference.o.begin(), reference.o.end()}, {reference.lse.begin(), reference.lse.end()}};
  Outputs outputs = right;

  void SetUp() override { set_bounds(1e-3); }
  void set_bounds(double bound) {
    reference.o_bound.assign(reference.rows.size(), bound);
    reference.lse_bound.assign(reference.rows.size(), bound);
  }
  CheckResult checked() const { return check(spec, reference, outputs); }
  CheckResult compared() const { return compare(spec, outputs, right, reference); }
};

TEST_F(Check, PassesWhatIsRight) {
  EXPECT_TRUE(checked().ok());
  EXPECT_TRUE(compared().ok());
  EXPECT_LT(checked().o.max_error, 1e-6);
  EXPECT_EQ(checked().o.bound, 1e-3);
  EXPECT_LT(checked().o.relative_rms, 1e-6);
  EXPECT_EQ(compared().o.max_error, 0);
  EXPECT_EQ(compared().o.relative_rms, 0);
  EXPECT_EQ(compared().lse.max_error, 0) << "-inf equals -inf";
}

TEST_F(Check, FailsOnOneWrongElementAnywhere) {
  for (std::size_t i = 0; i < outputs.o.size(); ++i) {
    outputs = right;
    outputs.o[i] += 3e-3f;
    ASSERT_FALSE(checked().o.ok) << i;
    ASSERT_FALSE(compared().o.ok) << i;
    ASSERT_TRUE(checked().lse.ok) << i;
  }
  for (std::size_t i = 0; i < outputs.lse.size(); ++i) {
    outputs = right;
    outputs.lse[i] = 7;
    ASSERT_FALSE(checked().lse.ok) << i;
    ASSERT_FALSE(compared().lse.ok) << i;
    ASSERT_TRUE(checked().o.ok) << i;
  }
}

TEST_F(Check, FailsOnNaN) {
  for (std::size_t i : {std::size_t(0), outputs.o.size() / 2, outputs.o.size() - 1}) {
    outputs = right;
    outputs.o[i] = NAN;
    EXPECT_FALSE(checked().o.ok);
    EXPECT_TRUE(std::isnan(checked().o.max_error));
    EXPECT_FALSE(compared().o.ok);
  }
  for (std::size_t i : {std::size_t(0), std::size_t(2), outputs.lse.size() - 1}) {
    outputs = right;
    outputs.lse[i] = NAN;
    EXPECT_FALSE(checked().lse.ok);
    EXPECT_FALSE(compared().lse.ok);
  }
}

TEST_F(Check, MinusInfinityOfTheLogSumExpEqualsOnlyItself) {
  ASSERT_EQ(reference.lse[0], -kInfinity);
  ASSERT_TRUE(std::isfinite(reference.lse[2]));
  for (float wrong : {0.0f, -1e30f, -std::numeric_limits<float>::max(), kInfinity}) {
    outputs = right;
    outputs.lse[0] = wrong;
    EXPECT_FALSE(checked().lse.ok) << wrong;
    EXPECT_FALSE(compared().lse.ok) << wrong;
  }
  outputs = right;
  outputs.lse[2] = -kInfinity;
  EXPECT_FALSE(checked().lse.ok);
  EXPECT_FALSE(compared().lse.ok);
  outputs.lse[2] = kInfinity;
  EXPECT_FALSE(compare(spec, outputs, outputs, reference).lse.ok) << "+inf is never right";
}

TEST_F(Check, FailsOnAnUnwrittenTail) {
  std::memset(&outputs.o.back(), kPoison, sizeof(float));
  std::memset(&outputs.lse.back(), kPoison, sizeof(float));
  EXPECT_FALSE(checked().o.ok);
  EXPECT_FALSE(checked().lse.ok);
  EXPECT_FALSE(compared().o.ok);
  EXPECT_FALSE(compared().lse.ok);
}

TEST_F(Check, FailsOnWrongSizes) {
  outputs.o.pop_back();
  outputs.lse.push_back(0);
  EXPECT_FALSE(checked().o.ok);
  EXPECT_FALSE(checked().lse.ok);
  EXPECT_EQ(checked().o.worst, "O has 1535 elements, not 1536");
  EXPECT_EQ(checked().lse.worst, "log-sum-exp has 25 elements, not 24");
  EXPECT_FALSE(compared().o.ok);
  EXPECT_FALSE(compared().lse.ok);
  EXPECT_FALSE(compare(spec, right, outputs, reference).o.ok);
  outputs = {};
  EXPECT_FALSE(checked().o.ok);
  EXPECT_FALSE(compare(spec, outputs, outputs, reference).o.ok);
}

TEST_F(Check, FailsWithAReferenceOfAnotherShape) {
  Spec smaller = spec;
  smaller.heads = 1;
  Outputs half = right;
  half.o.resize(smaller.q_elements());
  half.lse.resize(smaller.q_rows());
  EXPECT_FALSE(check(smaller, reference, half).o.ok);
  reference.o.pop_back();
  reference.lse.pop_back();
  EXPECT_FALSE(checked().o.ok);
  EXPECT_FALSE(checked().lse.ok);
}

TEST_F(Check, FailsIfNothingIsCompared) {
  reference = Reference{};
  EXPECT_FALSE(checked().o.ok);
  EXPECT_FALSE(checked().lse.ok);
  EXPECT_EQ(checked().o.worst, "no row of O was compared");
}

TEST_F(Check, FailsWithoutABound) {
  set_bounds(NAN);
  EXPECT_FALSE(checked().o.ok);
  EXPECT_FALSE(checked().lse.ok);
  EXPECT_FALSE(compared().o.ok);
  reference.o_bound.pop_back();
  reference.lse_bound.clear();
  EXPECT_EQ(checked().o.worst, "the reference has 23 bounds of O, not 24");
  EXPECT_EQ(checked().lse.worst, "the reference has 0 bounds of log-sum-exp, not 24");
}

TEST_F(Check, TheBoundItselfPasses) {
  outputs.o[300] = right.o[300] + 0.25f;
  const double error = std::abs(double(outputs.o[300]) - right.o[300]);
  set_bounds(error / 2);
  EXPECT_TRUE(compared().o.ok);
  set_bounds(std::nextafter(error / 2, 0.0));
  EXPECT_FALSE(compared().o.ok);
  set_bounds(std::abs(outputs.o[300] - reference.o[300]));
  EXPECT_TRUE(checked().o.ok);
  set_bounds(std::nextafter(std::abs(outputs.o[300] - reference.o[300]), 0.0));
  EXPECT_FALSE(checked().o.ok);
}

TEST_F(Check, HoldsEachRowAgainstItsOwnBound) {
  reference.o_bound[15] = 1, reference.lse_bound[15] = 1;
  outputs.o[15 * 64] += 0.5f, outputs.lse[15] += 0.5f;
  EXPECT_TRUE(checked().ok());
  EXPECT_TRUE(compared().ok());
  outputs = right;
  outputs.o[16 * 64] += 0.25f, outputs.lse[16] += 0.25f;
  EXPECT_FALSE(checked().o.ok);
  EXPECT_FALSE(checked().lse.ok);
  EXPECT_FALSE(compared().o.ok);
  EXPECT_FALSE(compared().lse.ok);
}

// Cores share the rows. Their findings are merged as if one core had read all rows.
TEST(CheckManyRows, FindsTheFirstOfTheWorstElements) {
  const Spec spec{{.seqlen_q = 5000}};
  const Outputs before{std::vector<float>(5000 * 64, 1.0f), std::vector<float>(5000, 1.0f)};
  Reference reference;
  reference.rows = {0}, reference.o.assign(64, 1), reference.o_bound = {0.1};
  reference.lse = {1}, reference.lse_bound = {0.1};
  Outputs after = before;
  for (const int row : {1500, 2500, 4999}) after.o[row * 64 + 3] = row == 1500 ? 1.5f : 3.0f;
  Verdict verdict = compare(spec, after, before, reference).o;
  EXPECT_FALSE(verdict.ok);
  EXPECT_NE(verdict.worst.find("query 2500, dim 3: got 3, want 1"), std::string::npos) << verdict.worst;
  EXPECT_DOUBLE_EQ(verdict.relative_rms, std::sqrt((0.25 + 4 + 4) / (5000 * 64)));
  after.o[3500 * 64] = NAN;
  verdict = compare(spec, after, before, reference).o;
  EXPECT_TRUE(std::isnan(verdict.max_error));
  EXPECT_NE(verdict.worst.find("query 3500, dim 0: got nan"), std::string::npos) << verdict.worst;
}

TEST(CheckRms, IsRelativeToTheReference) {
  const Spec spec{{.seqlen_q = 2}};
  const Outputs before{std::vector<float>(128, 2.0f), {2, -kInfinity}};
  const Outputs after{std::vector<float>(128, 2.5f), {2.5f, -kInfinity}};
  EXPECT_DOUBLE_EQ(compare(spec, after, before, {}).o.relative_rms, 0.25);
  EXPECT_DOUBLE_EQ(compare(spec, after, before, {}).lse.relative_rms, 0.25);
}

}  // namespace
}  // namespace flashbook
