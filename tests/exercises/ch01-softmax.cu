#include <algorithm>

#include "chapters/01_naive_attention/exercises/sink_softmax.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

class Softmax : public MachineTest {};

/// Compares every element of P and of the log-sum-exp with sums in double. The scores are random, times
/// `factor` plus `shift`, and NaN where masked; there is one head per element of `sinks`.
void expect_softmax(const std::vector<float>& sinks, const naive::Problem& problem, float factor = 1,
                    float shift = 0) {
  const int rows = int(sinks.size()) * problem.seqlen_q, stride = problem.score_stride;
  std::vector<float> scores = random_numbers(std::size_t(rows) * stride, 3, factor);
  for (float& score : scores) score += shift;
  const auto visible_keys = [&](int row) {
    const int seen = row % problem.seqlen_q + 1 + problem.seqlen_k - problem.seqlen_q;
    return problem.causal ? std::clamp(seen, 0, problem.seqlen_k) : problem.seqlen_k;
  };
  for (int row = 0; row < rows; ++row)
    std::fill_n(&scores[std::size_t(row) * stride] + visible_keys(row), stride - visible_keys(row), NAN);
  const DeviceArray score_array(DType::f32, scores), sink_array(DType::f32, sinks),
      probabilities(DType::f32, scores.size()), lse(DType::f32, std::size_t(rows));
  run(naive::sink_softmax<float>, dim3(unsigned(ceil_div(rows, 256))), dim3(256), 0, score_array.as<float>(),
      sink_array.as<float>(), probabilities.as<float>(), lse.as<float>(), int64_t(rows), problem);

  const std::vector<float> p = probabilities.download(), l = lse.download();
  Comparison weights, sums;
  for (int row = 0; row < rows; ++row) {
    const float* s = &scores[std::size_t(row) * stride];
    const int visible = visible_keys(row);
    const double sink = sinks[std::size_t(row / problem.seqlen_q)];
    double row_max = sink;
    for (int key = 0; key < visible; ++key) row_max = std::max(row_max, double(s[key]));
    double sum = std::exp(sink - row_max);
    for (int key = 0; key < visible; ++key) sum += std::exp(s[key] - row_max);
    const auto where = [&](const char* what) {
      return what + std::string(" of row ") + std::to_string(row) + ", which sees " +
             std::to_string(visible) + (visible == 1 ? " key" : " keys");
    };
    for (int key = 0; key < stride; ++key)
      weights.expect(p[std::size_t(row) * stride + key],
                     key < visible ? std::exp(s[key] - row_max) / sum : NAN, 1e-5,
                     [&] { return "key " + std::to_string(key) + where(" of P"); });
    sums.expect(l[std::size_t(row)], row_max + std::log(sum), 1e-5 * std::max(1.0, std::abs(row_max)),
                [&] { return where("the log-sum-exp"); });
  }
  weights.finish();
  sums.finish();
}

/// Returns a problem with rows of `keys` scores, without padding.
naive::Problem rows_of(int seqlen_q, int keys, bool causal) {
  return {
      .seqlen_q = seqlen_q, .seqlen_k = keys, .group = 1, .score_stride = keys, .causal = causal, .scale = 1};
}

TEST_F(Softmax, OfWholeRows) { expect_softmax({1.5f, -2}, rows_of(5, 100, false)); }
TEST_F(Softmax, LooksOnlyAtWhatTheMaskLeaves) { expect_softmax({0.5f}, rows_of(300, 300, true)); }
TEST_F(Softmax, OfScoresWhoseExponentialIsInfinite) { expect_softmax({100}, rows_of(4, 50, false), 1, 100); }
TEST_F(Softmax, OfASinkAboveAllScores) {
  for (float shift : {995, 0}) expect_softmax({1000}, rows_of(7, 31, false), 1, shift);
}
TEST_F(Softmax, OfARowThatSeesNoKey) { expect_softmax({3, -4}, rows_of(9, 6, true)); }

}  // namespace
}  // namespace flashbook::testing
