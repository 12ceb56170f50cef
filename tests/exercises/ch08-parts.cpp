#include "chapters/08_decoding/parts.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

using namespace decoding;

/// The task's formula.
double time_of(int64_t tiles, int key_tiles, int places, int parts) {
  return std::ceil(double(tiles * parts) / places) * (std::ceil(double(key_tiles) / parts) + kOverheadTiles);
}

void expect_parts(int64_t tiles, int key_tiles, int places) {
  int best = 1;
  for (int parts = 2; parts <= std::min(key_tiles, kMostParts); ++parts)
    if (time_of(tiles, key_tiles, places, parts) < time_of(tiles, key_tiles, places, best)) best = parts;
  const int got = observed(parts_for(tiles, key_tiles, places));
  EXPECT_EQ(got, best) << "for " << tiles << " tiles of rows, " << key_tiles << " of keys, " << places
                       << " blocks at once";
}

TEST(Parts, OfAFullMachine) { expect_parts(132, 1000, 132); }
TEST(Parts, OfOneTileOfKeys) { expect_parts(1, 1, 132); }
TEST(Parts, OfOneSequence) { expect_parts(8, 1024, 132); }
TEST(Parts, OfFewTilesOfKeys) { expect_parts(1, 5, 132); }
TEST(Parts, OfAVeryLongSequence) { expect_parts(1, 16384, 264); }
TEST(Parts, WhereTheLastWaveIsNearlyEmpty) { expect_parts(140, 1000, 132); }
TEST(Parts, WhereTheOverheadIsTooMuch) { expect_parts(100, 8, 132); }
TEST(Parts, OfSeveralThatTakeAsLong) { expect_parts(8, 64, 264); }

}  // namespace
}  // namespace flashbook::testing
