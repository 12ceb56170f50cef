#include "common/attention/gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "common/attention/check.h"
#include "common/attention/inputs.h"
#include "common/features/dropout/dropout.h"
#include "tests/support/input_error.h"
#include "tests/support/masks.h"

namespace flashbook {
namespace {

using Doubles = std::vector<double>;

/// Q, K and V in double, so that a step of 1e-5 exceeds rounding errors.
struct Point {
  Doubles q, k, v;
};

/// Returns <O, dO> + <L, dL>, where L is the log-sum-exp, straight from the definition of attention. `bias`
/// replaces the problem's, in double.
double loss(const Spec& spec, const Point& at, const std::vector<float>& d_o, const std::vector<float>& d_lse,
            const Doubles& bias) {
  double sum = 0;
  const int64_t dims = spec.head_dim;
  for (int64_t row = 0; row < spec.q_rows(); ++row) {
    const int head = int(row / spec.seqlen_q % spec.heads), query = int(row % spec.seqlen_q);
    const int batch = int(row / spec.seqlen_q / spec.heads);
    const int64_t first_key =
        (int64_t(batch) * spec.kv_heads + head / (spec.heads / spec.kv_heads)) * spec.seqlen_k;
    double row_sum = 0, row_loss = 0;
    for (int key = 0; key < spec.seqlen_k; ++key) {
      if (!testing::sees_by_definition(spec, batch, head, query, key)) continue;
      double score = 0, dp = 0;
      for (int64_t c = 0; c < dims; ++c) {
        score += at.q[row * dims + c] * at.k[(first_key + key) * dims + c];
        dp += d_o[row * dims + c] * at.v[(first_key + key) * dims + c];
      }
      score *= spec.scale;
      if (const double cap = spec.score.softcap; cap > 0) score = cap * std::tanh(score / cap);
      if (spec.score.alibi.size() == std::size_t(spec.heads))
        score -= spec.score.alibi[head] * std::abs(own_key(spec, batch, query) - key);
      else if (!spec.score.alibi.empty())  // no documents here
        score -= spec.score.alibi[batch * spec.heads + head] * std::abs(own_key(spec, batch, query) - key);
      if (!spec.score.bias.values.empty())
        score += bias[spec.score.bias.place(head, key - own_key(spec, batch, query))];
      const double weight = testing::times_listed(spec, batch, query, key) * std::exp(score);  // no overflow
      row_sum += weight;
      if (spec.score.dropout > 0) {
        const Dropout dropout(spec.score.dropout, spec.score.seed);
        dp *= dropout.keeps(batch, head, query, key) ? 65536.0 / (65536 - dropout.threshold) : 0;
      }
      row_loss += weight * dp;
    }
    if (row_sum > 0) sum += row_loss / row_sum + d_lse[row] * std::log(row_sum);
  }
  return sum;
}

Inputs inputs_of(const Spec& spec, uint64_t seed) {
  Inputs inputs = make_inputs(spec, InputKind::normal, seed);
  inputs.d_o = make_inputs(spec, InputKind::normal, seed + 1000).q;
  return inputs;
}

double sum_of_products(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Compares the derivatives along 8 directions, computed from the gradients and from finite differences.
void expect_right_slopes(const Spec& spec) {
  Inputs inputs = inputs_of(spec, 1);
  inputs.d_lse.resize(spec.q_rows());
  for (int64_t row = 0; row < spec.q_rows(); ++row) inputs.d_lse[row] = float(row * 37 % 11 - 5) / 4;
  const std::vector<TensorReference> gradients = make_gradient_reference(spec, inputs);
  const std::vector<float>& bias = spec.score.bias.values;
  const Doubles bias_gradient = bias.empty() ? Doubles() : make_bias_reference(spec, inputs).values;
  constexpr double kStep = 1e-5;
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  for (int i = 0; i < 8; ++i) {
    const auto direction = [&](const std::vector<float>& like) {
      Doubles values(like.size());
      for (double& value : values) value = normal(random);
      return values;
    };
    const Point along{direction(inputs.q), direction(inputs.k), direction(inputs.v)};
    const Doubles along_bias = direction(bias);
    const auto loss_at = [&](double step) {
      const auto move = [&](const std::vector<float>& from, const Doubles& by) {
        Doubles to(from.begin(), from.end());
        for (std::size_t j = 0; j < to.size(); ++j) to[j] += step * by[j];
        return to;
      };
      return loss(spec, {move(inputs.q, along.q), move(inputs.k, along.k), move(inputs.v, along.v)},
                  inputs.d_o, inputs.d_lse, move(bias, along_bias));
    };
    const double slope = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    const double dq = sum_of_products(gradients[0].values, along.q);
    const double dk = sum_of_products(gradients[1].values, along.k);
    const double dv = sum_of_products(gradients[2].values, along.v);
    const double d_bias = sum_of_products(bias_gradient, along_bias);
    ASSERT_NEAR(dq + dk + dv + d_bias, slope,
                1e-7 * (std::abs(dq) + std::abs(dk) + std::abs(dv) + std::abs(d_bias)))
        << describe(spec) << ", direction " << i;
  }
}

TEST(Gradient, IsTheSlopeAlongRandomDirections) {
  for (auto [seqlen_q, seqlen_k] : {std::pair{1, 1}, {17, 17}, {9, 30}, {30, 9}})
    for (int group : {1, 3})
      for (bool causal : {false, true})
        expect_right_slopes({{.batch = 2,
                              .heads = 2 * group,
                              .kv_heads = 2,
                              .seqlen_q = seqlen_q,
                              .seqlen_k = seqlen_k,
                              .dtype = DType::f32},
                             Visibility::causal_if(causal)});
}

TEST(Gradient, IsTheSlopeWithScoreFunctions) {
  std::mt19937 random(5);
  Spec spec{{.heads = 2, .kv_heads = 2, .seqlen_q = 20, .seqlen_k = 25, .dtype = DType::f32}};
  spec.score.softcap = 1.5f;
  expect_right_slopes(spec);
  spec.score.alibi = {0.5f, 0.0625f};
  expect_right_slopes(spec);
  spec.visibility = Visibility::causal();
  spec.score.softcap = 0;
  expect_right_slopes(spec);
  spec.score = {.bias = {1, {0.5f, -1, 0.25f, 0, 2, -0.5f}}, .dropout = 0.25f, .seed = 3};
  expect_right_slopes(spec);
  spec.batch = 2, spec.visibility.documents = {{0, 7, 20}, {0, 12, 25}};  // distances are within documents
  spec.score = {.bias = testing::random_bias(random, 2, 5)};
  expect_right_slopes(spec);
  spec.batch = 1, spec.visibility = Visibility::causal();
  spec.batch = 2, spec.score = {.alibi = {0.5f, 0.0625f, 0.125f, 1}};  // different for each batch entry
  expect_right_slopes(spec);
}

TEST(Gradient, IsTheSlopeUnderRandomMasks) {
  std::mt19937 random(3);
  for (int i = 0; i < 20; ++i) {
    Spec spec = testing::random_mask(random);
    spec.dtype = DType::f32;
    expect_right_slopes(spec);
  }
}

TEST(Gradient, OfWhatIsNotSeenIsZero) {
  Spec spec{{.seqlen_q = 20, .seqlen_k = 8, .dtype = DType::bf16}, Visibility::causal()};
  Inputs inputs = inputs_of(spec, 2);
  const std::vector<TensorReference> causal = make_gradient_reference(spec, inputs);
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(causal[0].bound[i], 0);
    for (int c = 0; c < 64; ++c) EXPECT_EQ(causal[0].values[i * 64 + c], 0) << "queries 0 to 11 see no key";
  }
  spec.visibility = {.lengths = {5}};
  for (int c = 5 * 64; c < 8 * 64; ++c) inputs.k[c] = inputs.v[c] = NAN;
  const std::vector<TensorReference> shorter = make_gradient_reference(spec, inputs);
  for (int tensor : {1, 2}) {
    for (int c = 0; c < 5 * 64; ++c) EXPECT_TRUE(std::isfinite(shorter[tensor].values[c]));
    for (int c = 5 * 64; c < 8 * 64; ++c)
      EXPECT_EQ(shorter[tensor].values[c], 0) << "no query sees keys 5 to 7";
    EXPECT_EQ(shorter[tensor].bound[5], 0);
  }
}

/// Tests faults of backward kernels, in plain 16-bit arithmetic.
TEST(Gradient, FailsOnTheFaultsOfKernels) {
  for (DType type : {DType::f32, DType::f16, DType::bf16})
    for (bool causal : {false, true}) {
      Spec spec{{.heads = 2, .kv_heads = 1, .seqlen_q = 150, .seqlen_k = 150, .dtype = type}};
      spec.visibility = Visibility::causal_if(causal);
      const Inputs inputs = inputs_of(spec, 8);
      const std::vector<TensorReference> right = make_gradient_reference(spec, inputs);
      const auto refused = [&](const Spec& asked, const Inputs& given) {
        const std::vector<TensorReference> wrong = make_gradient_reference(asked, given);
        int failures = 0;
        for (int i = 0; i < 3; ++i) {
          const std::vector<float> got(wrong[i].values.begin(), wrong[i].values.end());
          failures += !check(spec, right[i], got).ok;
        }
        return failures;
      };
      EXPECT_EQ(refused(spec, inputs), 0);
      Inputs lost_value = inputs;
      std::fill_n(lost_value.v.begin() + 75 * 64, 64, 0.0f);
      EXPECT_EQ(refused(spec, lost_value), 2) << "dQ and dK: " << describe(spec);
      Inputs lost_row = inputs;
      std::fill_n(lost_row.d_o.begin() + 75 * 64, 64, 0.0f);
      EXPECT_EQ(refused(spec, lost_row), 3) << describe(spec);
      Spec no_mask = spec;
      no_mask.visibility = Visibility::causal_if(!causal);
      EXPECT_EQ(refused(no_mask, inputs), 3) << describe(spec);
    }
}

}  // namespace
}  // namespace flashbook
