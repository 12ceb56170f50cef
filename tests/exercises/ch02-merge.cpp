#include <algorithm>

#include "chapters/02_online_softmax/step2_online_softmax.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

/// The state of a part of a row, by the definition.
SoftmaxState state_of(const std::vector<float>& scores) {
  SoftmaxState state;
  for (float score : scores) state.row_max = std::max(state.row_max, score);
  for (float score : scores) state.row_sum += std::exp(score - state.row_max);
  return state;
}

SoftmaxState merged(SoftmaxState state, const SoftmaxState& part) {
  merge(state, part);
  return observed(state);
}

SoftmaxState updated(SoftmaxState state, float score) {
  update(state, score);
  return observed(state);
}

void expect_state(const SoftmaxState& got, const SoftmaxState& want) {
  Comparison comparison;
  comparison.expect(got.row_max, want.row_max, 0, [] { return std::string("row_max"); });
  comparison.expect(got.row_sum, want.row_sum, 1e-5 * want.row_sum, [] { return std::string("row_sum"); });
  comparison.finish();
}

void expect_factors(const Factors& got, float correction, float weight) {
  Comparison comparison;
  comparison.expect(got.correction, correction, 1e-6, [] { return std::string("correction"); });
  comparison.expect(got.weight, weight, 1e-6, [] { return std::string("weight"); });
  comparison.finish();
}

TEST(Merge, TheExampleOfTheText) {
  expect_state(merged(state_of({2, 5}), state_of({3})), {.row_max = 5, .row_sum = 1.185122f});
}

TEST(Merge, FromEitherSide) {
  const SoftmaxState low = state_of({-3, 0.5f, 1}), high = state_of({4, 2});
  expect_state(merged(low, high), state_of({-3, 0.5f, 1, 4, 2}));
  expect_state(merged(high, low), state_of({-3, 0.5f, 1, 4, 2}));
}

TEST(Merge, OneScoreAtATime) {
  const std::vector<float> scores = random_numbers(500, 1, 5);
  SoftmaxState state;
  for (float score : scores) state = updated(state, score);
  expect_state(state, state_of(scores));
}

TEST(Merge, SaysWhatItMultipliedBy) {
  SoftmaxState state = state_of({1});
  expect_factors(observed(merge(state, state_of({3}))), std::exp(-2.0f), 1);
  expect_factors(observed(merge(state, state_of({2}))), 1, std::exp(-1.0f));
}

TEST(Merge, ScoresWhoseExponentialIsInfinite) {
  expect_state(merged(state_of({1e4f, -1e4f}), state_of({2e4f, 2e4f})), {.row_max = 2e4f, .row_sum = 2});
}

TEST(Merge, MaskedPartsLeaveNoNaN) {
  SoftmaxState state = updated({}, kMinusInfinity);
  expect_state(state, SoftmaxState());
  state = updated(state, 7);
  expect_state(state, {.row_max = 7, .row_sum = 1});
  state = updated(state, kMinusInfinity);
  expect_state(state, {.row_max = 7, .row_sum = 1});
}

}  // namespace
}  // namespace flashbook::testing
