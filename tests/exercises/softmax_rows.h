/// \file
/// Rows of scores for a softmax kernel of chapter 1, and their expected results.
#pragma once
#include <algorithm>
#include <limits>

#include "chapters/01_naive_attention/problem.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {

/// Calls `softmax(scores, probabilities, lse, rows, problem)`, which launches a kernel, and compares P and
/// the log-sum-exp with sums in double. The scores of the one head are random, times `factor` plus `shift`,
/// and NaN where masked.
template <typename Softmax>
void expect_softmax(Softmax softmax, const naive::Problem& problem, float factor = 1, float shift = 0) {
  const int rows = problem.seqlen_q, stride = problem.score_stride;
  const auto visible_keys = [&](int query) {
    const int seen = problem.causal ? query + 1 + problem.seqlen_k - problem.seqlen_q : problem.seqlen_k;
    return std::clamp(seen, 0, problem.seqlen_k);
  };
  std::vector<float> scores = random_numbers(std::size_t(rows) * stride, 3, factor);
  for (float& score : scores) score += shift;
  for (int row = 0; row < rows; ++row)
    std::fill_n(&scores[std::size_t(row) * stride] + visible_keys(row), stride - visible_keys(row), NAN);
  const DeviceArray score_array(DType::f32, scores), probabilities(DType::f32, scores.size()),
      lse(DType::f32, rows);
  softmax(score_array.as<float>(), probabilities.as<float>(), lse.as<float>(), rows, problem);

  const std::vector<float> p = probabilities.download(), l = lse.download();
  Comparison weights, sums;
  for (int row = 0; row < rows; ++row) {
    const float* s = &scores[std::size_t(row) * stride];
    const int visible = visible_keys(row);
    const std::string keys = std::to_string(visible) + (visible == 1 ? " key" : " keys");
    const double row_max = visible ? *std::max_element(s, s + visible) : 0;
    double sum = 0;
    for (int key = 0; key < visible; ++key) sum += std::exp(s[key] - row_max);
    for (int key = 0; key < stride; ++key)
      weights.expect(p[std::size_t(row) * stride + key],
                     key < visible ? std::exp(s[key] - row_max) / sum : NAN, 1e-5, [&] {
                       return "P of row " + std::to_string(row) + ", key " + std::to_string(key) + ", of " +
                              keys;
                     });
    const double want = visible ? row_max + std::log(sum) : -std::numeric_limits<double>::infinity();
    sums.expect(l[row], want, 1e-5 * std::max(1.0, std::abs(row_max)),
                [&] { return "the log-sum-exp of row " + std::to_string(row) + ", of " + keys; });
  }
  weights.finish();
  sums.finish();
}

}  // namespace flashbook::testing
