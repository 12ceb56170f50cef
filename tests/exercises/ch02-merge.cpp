#include <algorithm>

#include "chapters/02_online_softmax/online_softmax.h"
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
  EXPECT_EQ(got.row_max, want.row_max) << "row_max";
  EXPECT_NEAR(got.row_sum, want.row_sum, 1e-5 * want.row_sum) << "row_sum";
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
  const Factors up = observed(merge(state, state_of({3})));
  EXPECT_FLOAT_EQ(up.correction, std::exp(-2.0f));
  EXPECT_FLOAT_EQ(up.weight, 1);
  const Factors down = observed(merge(state, state_of({2})));
  EXPECT_FLOAT_EQ(down.correction, 1);
  EXPECT_FLOAT_EQ(down.weight, std::exp(-1.0f));
}

TEST(Merge, ScoresWhoseExponentialIsInfinite) {
  expect_state(merged(state_of({1e4f, -1e4f}), state_of({1e4f})), {.row_max = 1e4f, .row_sum = 2});
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
