#include "chapters/02_online_softmax/exercises/row_with_sinks.h"
#include "tests/exercises/attention_rows.h"

namespace flashbook::testing {
namespace {

constexpr int kHidden = 37;  // keys between the sinks and the window, which must not be read

/// Checks a row that sees `scores`, the first kSinks of which belong to sinks. `hidden` keys, each of which
/// would outweigh all others, follow the sinks. `window`: the row's window; default: everything after the
/// hidden keys.
void expect_seen(const std::vector<float>& scores, int hidden = kHidden, int window = 0) {
  if (window == 0) window = int(scores.size()) - kSinks;
  const float top = *std::max_element(scores.begin(), scores.end()) + 5;
  const auto with_hidden = [&](const Row& row, const float* rows, float value) {
    std::vector<float> all(rows, rows + std::size_t(row.keys) * kHeadDim);
    const auto behind_sinks = all.begin() + std::min(kSinks, row.keys) * kHeadDim;
    all.insert(behind_sinks, std::size_t(hidden) * kHeadDim, value);
    return all;
  };
  expect_row(
      [&](const Row& row, float* o) {
        const std::vector<float> k = with_hidden(row, row.k, top), v = with_hidden(row, row.v, 100);
        Row all = row;
        all.k = k.data();
        all.v = v.data();
        all.keys += hidden;
        return attention_row_with_sinks(all, window, o);
      },
      scores);
}

TEST(OnePass, OfRisingScores) { expect_seen(rising(100)); }
TEST(OnePass, OfFallingScores) { expect_seen(falling(100)); }
TEST(OnePass, OfRandomScores) { expect_seen(random_numbers(1000, 4, 3)); }
TEST(OnePass, OfScoresWhoseExponentialIsInfinite) { expect_seen(random_numbers(50, 5, 1000)); }
TEST(OnePass, WhoseWindowReachesASink) {
  for (int window : {kSinks + 5, 7, 100}) expect_seen(random_numbers(kSinks + 5, 8), 0, window);
}

}  // namespace
}  // namespace flashbook::testing
