#include "chapters/02_online_softmax/exercises/weights_again.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

constexpr int kHeadDim = 8;

/// Passes a row whose scores are `scores` and a dV that already holds sums, and compares with weights in
/// double.
void expect_gradient(const std::vector<float>& scores) {
  const int keys = int(scores.size());
  const std::vector<float> q = {1, 0, 0, 0, 0, 0, 0, 0}, d_o = random_numbers(kHeadDim, 1),
                           before = random_numbers(scores.size() * kHeadDim, 2);
  std::vector<float> k(scores.size() * kHeadDim, 1.0f);
  for (int key = 0; key < keys; ++key) k[std::size_t(key) * kHeadDim] = scores[key];
  const double row_max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  if (std::isfinite(row_max))
    for (float score : scores) sum += std::exp(score - row_max);
  const double lse = sum > 0 ? row_max + std::log(sum) : double(kMinusInfinity);
  std::vector<float> d_v = before;
  const Row row = {
      .q = q.data(), .k = k.data(), .v = nullptr, .keys = keys, .head_dim = kHeadDim, .scale = 1};
  add_value_gradient(row, float(lse), d_o.data(), d_v.data());
  d_v = observed(d_v);
  Comparison comparison;
  for (std::size_t i = 0; i < d_v.size(); ++i) {
    const double weight = sum > 0 ? std::exp(scores[i / kHeadDim] - lse) : 0;
    comparison.expect(d_v[i], before[i] + weight * d_o[i % kHeadDim], 1e-4, [&] {
      return "dV of key " + std::to_string(i / kHeadDim) + ", dimension " + std::to_string(i % kHeadDim) +
             ",";
    });
  }
  comparison.finish();
}

TEST(Again, OfOneTile) { expect_gradient(random_numbers(kTileKeys, 3)); }
TEST(Again, OfAPartOfATile) { expect_gradient(random_numbers(5, 4)); }
TEST(Again, OfTwoTilesOfEqualScores) { expect_gradient(std::vector<float>(2 * kTileKeys, 0.5f)); }
TEST(Again, OfManyTiles) { expect_gradient(random_numbers(300, 5, 3)); }
TEST(Again, OfScoresWhoseExponentialIsInfinite) { expect_gradient(random_numbers(100, 6, 300)); }
TEST(Again, OfMaskedKeys) {
  std::vector<float> scores = random_numbers(40, 7);
  std::fill(scores.begin() + 20, scores.end(), kMinusInfinity);
  expect_gradient(scores);
}
TEST(Again, OfARowThatSeesNoKey) { expect_gradient(std::vector<float>(20, kMinusInfinity)); }

}  // namespace
}  // namespace flashbook::testing
