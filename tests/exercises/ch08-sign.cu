#include <algorithm>
#include <numeric>

#include "chapters/08_decoding/exercises/one_query.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

constexpr int kWidth = 32;

class Sign : public MachineTest {};

/// Checks the attention of rows of scores, which include the factor log2(e).
void expect_attention(const std::vector<std::vector<float>>& rows) {
  const int keys = int(rows[0].size());
  std::vector<float> flat;
  for (const std::vector<float>& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  const std::vector<float> values = random_numbers(std::size_t(keys) * kWidth, 9);
  const DeviceArray scores(DType::f32, flat), v(DType::f32, values), o(DType::f32, rows.size() * kWidth);
  run(decoding::attend_one_query, dim3(rows.size()), dim3(32), 0, scores.as<float>(), v.as<float>(),
      o.as<float>(), keys);
  const std::vector<float> got = o.download();
  Comparison comparison;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const double max = *std::ranges::max_element(rows[row]);
    double sum = 0;
    for (float score : rows[row]) sum += std::exp2(score - max);
    for (int column = 0; column < kWidth; ++column) {
      double want = 0;
      for (int key = 0; key < keys; ++key)
        want += std::exp2(rows[row][key] - max) / sum * values[key * kWidth + column];
      comparison.expect(got[row * kWidth + column], want, 1e-4, [&] {
        return "O of row " + std::to_string(row) + ", column " + std::to_string(column) + ",";
      });
    }
  }
  comparison.finish();
}

std::vector<float> falling(int keys) {
  std::vector<float> scores(keys);
  for (int key = 0; key < keys; ++key) scores[key] = 2 - 0.05f * float(key);
  return scores;
}

std::vector<float> rising(int keys) {
  std::vector<float> scores = falling(keys);
  std::ranges::reverse(scores);
  return scores;
}

TEST_F(Sign, OneTile) { expect_attention({random_numbers(32, 1), random_numbers(32, 2)}); }
TEST_F(Sign, APartOfATile) { expect_attention({rising(5)}); }
TEST_F(Sign, FallingScores) { expect_attention({falling(100)}); }
TEST_F(Sign, RisingScores) { expect_attention({rising(100), falling(100)}); }
TEST_F(Sign, RandomScores) { expect_attention({random_numbers(300, 3, 3), random_numbers(300, 4, 3)}); }

}  // namespace
}  // namespace flashbook::testing
