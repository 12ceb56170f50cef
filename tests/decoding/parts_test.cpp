#include "chapters/08_decoding/host/parts.h"

#include <gtest/gtest.h>

#include <cmath>

namespace flashbook::decoding {
namespace {

/// Returns the time in the heuristic's model, from its definition.
double time_of(int64_t tiles, int key_tiles, int slots, int parts) {
  return std::ceil(double(tiles * parts) / slots) * (std::ceil(double(key_tiles) / parts) + kOverheadTiles);
}

TEST(Parts, NoOtherCountIsFaster) {
  for (int64_t tiles : {1, 2, 8, 16, 100, 131, 132, 133, 200, 512, 4096})
    for (int key_tiles : {1, 2, 3, 8, 64, 100, 1000, 16384})
      for (int slots : {3, 108, 132, 264}) {
        const int parts = parts_for(tiles, key_tiles, slots);
        EXPECT_GE(parts, 1);
        EXPECT_LE(parts, std::min(key_tiles, kMaxParts));
        for (int other = 1; other <= std::min(key_tiles, kMaxParts); ++other) {
          const double ours = time_of(tiles, key_tiles, slots, parts);
          const double theirs = time_of(tiles, key_tiles, slots, other);
          EXPECT_TRUE(ours < theirs || (ours == theirs && parts <= other))
              << tiles << " tiles, " << key_tiles << " of keys, " << slots << " slots: " << parts
              << " parts, not " << other;
        }
      }
}

TEST(Parts, AFullMachineNeedsOne) { EXPECT_EQ(parts_for(132, 1000, 132), 1); }
TEST(Parts, OneSequenceFillsTheMachine) { EXPECT_EQ(parts_for(8, 1024, 132), 16); }
TEST(Parts, ASequenceWithoutKeysHasOne) { EXPECT_EQ(parts_for(8, 0, 132), 1); }

}  // namespace
}  // namespace flashbook::decoding
