#include "tests/exercises/ch02-merge.cpp"

namespace flashbook::testing {
TEST(Merge, PartsOfEverySize) {
  const std::vector<float> scores = random_numbers(std::size_t(drawn(250, 350, 1)), 2, 20);
  EntropyState state;
  std::size_t begin = 0;
  for (std::size_t size = 1; begin < scores.size(); begin += size++)
    state = merged(state, state_of({scores.begin() + long(begin),
                                    scores.begin() + long(std::min(begin + size, scores.size()))}));
  expect_state(state, state_of(scores));
}

TEST(Merge, PartsThatAreEmpty) {
  const std::vector<float> scores = random_numbers(2, 3);
  expect_state(merged(state_of(scores), {}), state_of(scores));
  expect_state(merged({}, state_of(scores)), state_of(scores));
  expect_state(merged({}, {}), EntropyState());
}
}  // namespace flashbook::testing
