#include "chapters/08_decoding/exercises/full_waves.h"
#include "common/numeric/arithmetic.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

/// Returns how full the waves are, in whole numbers: blocks / (waves * places), waves rounded up.
double full(int64_t blocks, int places) { return double(blocks) / double(ceil_div(blocks, places) * places); }

void expect_fullness(int64_t blocks, int places) {
  EXPECT_NEAR(observed(decoding::fullness(blocks, places)), full(blocks, places), 1e-9)
      << "fullness of " << blocks << " blocks where " << places << " run at once";
}

void expect_parts(int64_t tiles, int key_tiles, int places) {
  double best = 0;
  for (int parts = 1; parts <= key_tiles; ++parts) best = std::max(best, full(tiles * parts, places));
  int want = 1;
  while (full(tiles * want, places) < 0.85 * best) ++want;
  EXPECT_EQ(observed(decoding::parts_by_fullness(tiles, key_tiles, places)), want)
      << "for " << tiles << " tiles of rows, " << key_tiles << " of keys, " << places << " blocks at once";
}

TEST(Waves, FullnessOfFullWaves) { expect_fullness(396, 132); }
TEST(Waves, OfAFullMachine) { expect_parts(264, 1000, 132); }
TEST(Waves, OfOneTileOfKeys) { expect_parts(8, 1, 132); }
TEST(Waves, FullnessOfAPartOfAWave) { expect_fullness(33, 132); }
TEST(Waves, FullnessOfTheText) { expect_fullness(298, 132); }
TEST(Waves, OfOneSequence) { expect_parts(8, 1024, 132); }
TEST(Waves, WhereTheSecondWaveIsNearlyEmpty) { expect_parts(140, 64, 132); }

}  // namespace
}  // namespace flashbook::testing
