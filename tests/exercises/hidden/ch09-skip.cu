#include "tests/exercises/ch09-skip.cu"

namespace flashbook::testing {
TEST_F(Skip, EveryInterval) {
  const int queries = drawn(33, 40, 1);
  std::vector<std::vector<HiddenFrom>> tiles;
  for (int begin = 0; begin < queries; ++begin)
    for (int end = begin + 1; end <= queries; ++end) tiles.push_back({{begin, end}});
  expect_classes(tiles, queries);
}
}  // namespace flashbook::testing
