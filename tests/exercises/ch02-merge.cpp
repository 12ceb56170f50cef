#include <algorithm>

#include "chapters/02_online_softmax/exercises/entropy_state.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

/// Returns the state of a part of a row, computed from the definition.
EntropyState state_of(const std::vector<float>& scores) {
  EntropyState state;
  for (float score : scores) state.row_max = std::max(state.row_max, score);
  double row_sum = 0, score_sum = 0;
  for (float score : scores) {
    const double weight = std::exp(double(score) - state.row_max);
    row_sum += weight;
    score_sum += score * weight;
  }
  state.row_sum = float(row_sum);
  state.score_sum = float(score_sum);
  return state;
}

EntropyState merged(EntropyState state, const EntropyState& part) {
  merge(state, part);
  return observed(state);
}

void expect_state(const EntropyState& got, const EntropyState& want) {
  Comparison comparison;
  comparison.expect(got.row_max, want.row_max, 0, [] { return std::string("row_max"); });
  comparison.expect(got.row_sum, want.row_sum, 1e-5 * want.row_sum, [] { return std::string("row_sum"); });
  comparison.expect(got.score_sum, want.score_sum,
                    1e-5 * std::max(1.0f, std::abs(want.row_max) * want.row_sum),
                    [] { return std::string("score_sum"); });
  comparison.finish();
}

TEST(Merge, TheExampleOfTheText) {
  expect_state(merged(state_of({2, 5}), state_of({3})),
               {.row_max = 5, .row_sum = 1.185122f, .score_sum = 5.505580f});
}

TEST(Merge, FromEitherSide) {
  const EntropyState low = state_of({-3, 0.5f, 1}), high = state_of({4, 2});
  expect_state(merged(low, high), state_of({-3, 0.5f, 1, 4, 2}));
  expect_state(merged(high, low), state_of({-3, 0.5f, 1, 4, 2}));
}

TEST(Merge, OneScoreAtATime) {
  const std::vector<float> scores = random_numbers(500, 1, 5);
  EntropyState state;
  for (float score : scores) state = merged(state, state_of_score(score));
  expect_state(state, state_of(scores));
}

TEST(Merge, TheEntropyOfEqualAndOfUnequalScores) {
  Comparison comparison;
  for (int keys : {1, 2, 64}) {
    EntropyState state;
    for (int key = 0; key < keys; ++key) state = merged(state, state_of_score(3));
    comparison.expect(state.entropy(), std::log(double(keys)), 1e-5,
                      [&] { return "the entropy of " + std::to_string(keys) + " equal scores"; });
  }
  const EntropyState two = merged(state_of_score(0), state_of_score(std::log(3.0f)));  // 1/4 and 3/4
  comparison.expect(two.entropy(), 0.5623351, 1e-5, [] { return std::string("the entropy of 1/4 and 3/4"); });
  comparison.finish();
}

TEST(Merge, ScoresWhoseExponentialIsInfinite) {
  expect_state(merged(state_of({1e4f, -1e4f}), state_of({2e4f, 2e4f})),
               {.row_max = 2e4f, .row_sum = 2, .score_sum = 4e4f});
}

TEST(Merge, MaskedScoresLeaveNoNaN) {
  const EntropyState masked = state_of_score(kMinusInfinity);
  EntropyState state = merged({}, masked);
  expect_state(state, EntropyState());
  state = merged(state, state_of_score(7));
  expect_state(state, {.row_max = 7, .row_sum = 1, .score_sum = 7});
  state = merged(state, masked);
  expect_state(state, {.row_max = 7, .row_sum = 1, .score_sum = 7});
}

}  // namespace
}  // namespace flashbook::testing
