/// \file
/// A row of attention for an exercise of chapter 2, and its expected result.
#pragma once
#include <algorithm>
#include <functional>

#include "chapters/02_online_softmax/rows.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {

constexpr int kHeadDim = 8;

/// Calls `attention_row(row, o)` with a row whose scores are `scores`, and compares O and the log-sum-exp
/// with sums in double.
inline void expect_row(const std::function<float(const Row&, float*)>& attention_row,
                       const std::vector<float>& scores) {
  const int keys = int(scores.size());
  const std::vector<float> q = {1, 0, 0, 0, 0, 0, 0, 0}, v = random_numbers(scores.size() * kHeadDim, 9);
  std::vector<float> k(scores.size() * kHeadDim, 1.0f);
  for (int key = 0; key < keys; ++key) k[std::size_t(key) * kHeadDim] = scores[key];
  std::vector<float> o(kHeadDim);
  const Row row = {
      .q = q.data(), .k = k.data(), .v = v.data(), .keys = keys, .head_dim = kHeadDim, .scale = 1};
  const float lse = observed(attention_row(row, o.data()));
  o = observed(o);

  const double row_max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  std::vector<double> want(kHeadDim);
  for (int key = 0; key < keys; ++key) {
    const double weight = std::exp(scores[key] - row_max);
    sum += weight;
    for (int d = 0; d < kHeadDim; ++d) want[d] += weight * v[std::size_t(key) * kHeadDim + d];
  }
  Comparison comparison;
  for (int d = 0; d < kHeadDim; ++d)
    comparison.expect(o[d], want[d] / sum, 1e-4, [&] { return "element " + std::to_string(d) + " of O"; });
  comparison.expect(lse, row_max + std::log(sum), 1e-4, [] { return std::string("the log-sum-exp"); });
  comparison.finish();
}

/// Returns the scores 0, 1/8, 2/8, ..., each of which is a new maximum.
inline std::vector<float> rising(int count) {
  std::vector<float> scores(count);
  for (int i = 0; i < count; ++i) scores[i] = float(i) / 8;
  return scores;
}

/// Returns descending scores: the first one stays the maximum.
inline std::vector<float> falling(int count) {
  const std::vector<float> scores = rising(count);
  return {scores.rbegin(), scores.rend()};
}

}  // namespace flashbook::testing
