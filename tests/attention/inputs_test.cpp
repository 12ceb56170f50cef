#include "common/attention/inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/support/shapes.h"

namespace flashbook {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16, DType::e4m3};
constexpr InputKind kKinds[] = {InputKind::normal,       InputKind::outliers, InputKind::channels,
                                InputKind::large_scores, InputKind::one_hot,  InputKind::all_equal,
                                InputKind::drifting};

Shape shape_of(DType type, int head_dim, int seqlen_q, int seqlen_k) {
  return testing::make_shape(seqlen_q, seqlen_k, head_dim, false, type, 4, 2);
}

/// Returns the mean of value^power.
double moment(const std::vector<float>& values, int power) {
  double sum = 0;
  for (float value : values) sum += std::pow(double(value), power);
  return sum / double(values.size());
}

double share_beyond(const std::vector<float>& values, double limit) {
  return double(std::ranges::count_if(values, [=](float value) { return std::abs(value) > limit; })) /
         double(values.size());
}

/// Returns the scaled scores of one query with every key of its head.
std::vector<double> scores(const Shape& shape, const Inputs& inputs, int64_t row) {
  const int64_t batch_and_head = row / shape.seqlen_q;
  const int64_t batch = batch_and_head / shape.heads, head = batch_and_head % shape.heads;
  const int64_t kv_head = batch * shape.kv_heads + head / (shape.heads / shape.kv_heads);
  std::vector<double> result(shape.seqlen_k);
  for (int64_t j = 0; j < shape.seqlen_k; ++j)
    for (int64_t c = 0; c < shape.head_dim; ++c)
      result[j] += double(inputs.q[row * shape.head_dim + c]) *
                   inputs.k[(kv_head * shape.seqlen_k + j) * shape.head_dim + c] * shape.scale;
  return result;
}

TEST(Inputs, AreFiniteAndRoundedToTheirType) {
  for (InputKind kind : kKinds)
    for (DType type : kTypes)
      for (float scale : {1e-9f, 0.125f, 1e9f}) {
        Shape shape = shape_of(type, 64, 33, 65);
        shape.scale = scale;
        const Inputs inputs = make_inputs(shape, kind, 2);
        for (const std::vector<float>* tensor : {&inputs.q, &inputs.k, &inputs.v})
          ASSERT_TRUE(std::ranges::all_of(*tensor, [](float value) { return std::isfinite(value); }));
        Inputs rounded = inputs;
        round_inputs(shape, rounded);
        ASSERT_EQ(rounded.q, inputs.q);
        ASSERT_EQ(rounded.k, inputs.k);
        ASSERT_EQ(rounded.v, inputs.v);
      }
}

TEST(Inputs, FollowFromSeedAndIndexAlone) {
  // One thread fills a small tensor; all threads share a large one.
  Shape few = shape_of(DType::f32, 64, 1, 1), many = few;
  few.heads = few.kv_heads = many.heads = many.kv_heads = 1;
  many.seqlen_q = many.seqlen_k = 3000;
  for (InputKind kind :
       {InputKind::normal, InputKind::outliers, InputKind::large_scores, InputKind::all_equal}) {
    const Inputs small = make_inputs(few, kind, 7), large = make_inputs(many, kind, 7);
    EXPECT_TRUE(std::ranges::equal(small.q, std::span(large.q).first(64)));
    EXPECT_TRUE(std::ranges::equal(small.k, std::span(large.k).first(64)));
    EXPECT_TRUE(std::ranges::equal(small.v, std::span(large.v).first(64)));
  }
  for (InputKind kind : kKinds) {
    const Inputs once = make_inputs(many, kind, 7), again = make_inputs(many, kind, 7);
    EXPECT_EQ(once.q, again.q);
    EXPECT_EQ(once.k, again.k);
    EXPECT_EQ(once.v, again.v);
  }
}

TEST(Inputs, AreTheSameOnEveryMachine) {
  const Inputs inputs = make_inputs(shape_of(DType::f32, 64, 1, 1), InputKind::normal, 1);
  EXPECT_EQ(std::vector(inputs.q.begin(), inputs.q.begin() + 3),
            (std::vector{0x1.5c0b8p-2f, -0x1.6832p+0f, -0x1.986c4p+0f}));
  EXPECT_EQ(std::vector(inputs.k.begin(), inputs.k.begin() + 3),
            (std::vector{-0x1.033fp+0f, 0x1.afbf4p-1f, 0x1.1becp-1f}));
  EXPECT_EQ(std::vector(inputs.v.begin(), inputs.v.begin() + 3),
            (std::vector{-0x1.4b83p-2f, 0x1.0c64ap+1f, 0x1.bdfc8p-2f}));
}

TEST(Inputs, NormalHasTheMomentsOfANormal) {
  const Shape shape = shape_of(DType::f32, 256, 1000, 1);
  const std::vector<float> q = make_inputs(shape, InputKind::normal, 3).q;  // 1,024,000 values
  // Five standard errors of a million samples.
  EXPECT_NEAR(moment(q, 1), 0, 0.005);
  EXPECT_NEAR(moment(q, 2), 1, 0.008);
  EXPECT_NEAR(moment(q, 3), 0, 0.02);
  EXPECT_NEAR(moment(q, 4), 3, 0.08);
  EXPECT_NEAR(share_beyond(q, 1), 0.3173, 0.0025);
  EXPECT_NEAR(share_beyond(q, 2), 0.0455, 0.0012);
  EXPECT_NEAR(share_beyond(q, 4), 6.3e-5, 4e-5);
}

TEST(Inputs, OutliersAreOneInAThousandAndTenTimesAsLarge) {
  const Shape shape = shape_of(DType::f32, 256, 1000, 1);
  const std::vector<float> q = make_inputs(shape, InputKind::outliers, 5).q;
  // One in a thousand is N(0, 101), and 42.6 % of those exceed 8 in magnitude; no other value does.
  EXPECT_NEAR(share_beyond(q, 8), 0.001 * 0.426, 0.0001);
  // The outliers add ten times the size of `normal` values.
  const std::vector<float> plain = make_inputs(shape, InputKind::normal, 5).q;
  std::vector<float> added;
  for (std::size_t i = 0; i < q.size(); ++i)
    if (q[i] != plain[i]) added.push_back(q[i] - plain[i]);
  EXPECT_NEAR(double(added.size()) / double(q.size()), 0.001, 0.00016);
  EXPECT_NEAR(moment(added, 2), 100, 15);
}

TEST(Inputs, OneHotLeavesOneKeyInEveryType) {
  for (DType type : kTypes)
    for (int head_dim : {64, 128, 256})
      for (bool causal : {false, true}) {
        Shape shape = shape_of(type, head_dim, 40, 333);
        shape.batch = 2;
        shape.visibility = Visibility::causal_if(causal);
        const Inputs inputs = make_inputs(shape, InputKind::one_hot, 8);
        for (int64_t row = 0; row < shape.q_rows(); ++row) {
          std::vector<double> s = scores(shape, inputs, row);
          s.resize(shape.visible_keys(int(row % shape.seqlen_q)));
          std::ranges::sort(s, std::greater());
          // exp(-746) is 0 in FP64, so certainly in the type.
          ASSERT_GT(s[0] - s[1], 746) << describe(shape) << ", row " << row;
        }
      }
}

// Inputs that force a kernel with lazy rescaling to rescale: each tile of 128 keys exceeds the previous one
// by more than the slack, with the keys in ascending order in one row and in descending order in the next.
TEST(Inputs, DriftingScoresRiseInOneRowAndFallInTheNext) {
  constexpr double kSlack = 8 * 0.693;  // a factor of 2^8
  for (DType type : kTypes)
    for (int head_dim : {64, 128, 256}) {
      const Shape shape = shape_of(type, head_dim, 50, 256);
      const Inputs inputs = make_inputs(shape, InputKind::drifting, 12);
      int overtaken = 0;
      for (int64_t row = 0; row < shape.q_rows(); ++row) {
        const std::vector<double> s = scores(shape, inputs, row);
        const double rise =
            *std::max_element(s.begin() + 128, s.end()) - *std::max_element(s.begin(), s.begin() + 128);
        overtaken += (row % 2 == 0 ? rise : -rise) > kSlack;
      }
      EXPECT_GE(overtaken, 0.95 * double(shape.q_rows())) << describe(shape);
    }
}

}  // namespace
}  // namespace flashbook
