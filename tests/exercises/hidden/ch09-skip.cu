// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch09-skip.cu"

namespace flashbook::testing {
namespace {

TEST_F(Skip, EveryInterval) {
  std::vector<std::vector<HiddenFrom>> tiles;
  for (int begin = 0; begin < 36; ++begin)
    for (int end = begin + 1; end <= 36; ++end) tiles.push_back({{begin, end}});
  expect_classes(tiles, 36);
}

}  // namespace
}  // namespace flashbook::testing
