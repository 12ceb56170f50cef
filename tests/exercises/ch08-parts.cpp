#include "chapters/08_decoding/exercises/part_length.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

using namespace decoding;

/// Returns the time by the formula of the task.
double time_of(const std::vector<int>& key_tiles, int heads, int places, int length) {
  double blocks = 0;
  for (int tiles : key_tiles) blocks += heads * std::max(std::ceil(double(tiles) / length), 1.0);
  return std::ceil(blocks / places) * (length + kOverheadTiles);
}

void expect_length(const std::vector<int>& key_tiles, int heads, int places) {
  const int longest = std::max(*std::max_element(key_tiles.begin(), key_tiles.end()), 1);
  int best = longest;
  for (int length = longest; length * kMaxParts >= longest; --length)
    if (time_of(key_tiles, heads, places, length) < time_of(key_tiles, heads, places, best)) best = length;
  const int got = observed(tiles_of_part(key_tiles, heads, places));
  EXPECT_EQ(got, best) << "for " << key_tiles.size() << " sequences, the longest of " << longest
                       << " tiles of keys, " << heads << " key heads, " << places << " blocks at once";
}

/// Returns `before` with `count` more sequences of `tiles` tiles of keys each.
std::vector<int> and_more(int count, int tiles, std::vector<int> before = {}) {
  before.insert(before.end(), count, tiles);
  return before;
}

TEST(Parts, OfAFullMachine) { expect_length(and_more(132, 1000), 1, 132); }
TEST(Parts, OfOneTileOfKeys) { expect_length({1}, 1, 132); }
TEST(Parts, WhereTheOverheadIsTooMuch) { expect_length(and_more(100, 8), 1, 132); }
TEST(Parts, OfALongOneAmongShortOnes) { expect_length({1000, 30, 20, 50, 7, 300}, 8, 132); }
TEST(Parts, OfSequencesWithoutKeys) { expect_length(and_more(100, 0, {40, 0, 9}), 2, 132); }
TEST(Parts, OfAVeryLongSequence) { expect_length({16384, 300, 5}, 1, 264); }
TEST(Parts, WhereTheLastWaveIsNearlyEmpty) { expect_length(and_more(40, 700, and_more(100, 1000)), 1, 132); }
TEST(Parts, OfSeveralThatTakeAsLong) { expect_length({1000, 10, 20, 5}, 8, 132); }

}  // namespace
}  // namespace flashbook::testing
