/// \file
/// Where swizzles put a byte.
#include "common/device/swizzle.h"

#include <gtest/gtest.h>

#include <set>

namespace flashbook {
namespace {

TEST(SwizzleTest, KnownPlaces) {
  EXPECT_EQ(swizzled(Swizzle::none, 1000), 1000u);
  EXPECT_EQ(swizzled(Swizzle::b128, 128 * 3 + 16 * 5 + 4), 128u * 3 + 16 * (5 ^ 3) + 4);
  EXPECT_EQ(swizzled(Swizzle::b128, 1024 + 128 * 7), 1024u + 128 * 7 + 16 * 7);
  EXPECT_EQ(swizzled(Swizzle::b64, 64 * 5 + 16), 64u * 5 + 16 * (1 ^ 2));  // row 5 is in pair 2
  EXPECT_EQ(swizzled(Swizzle::b32, 32 * 3 + 16), 32u * 3 + 16);            // rows 0 to 3 stay
  EXPECT_EQ(swizzled(Swizzle::b32, 32 * 4 + 16), 32u * 4);                 // rows 4 to 7 change places
}

TEST(SwizzleTest, ExchangesWithinARowAndTwiceIsNothing) {
  for (Swizzle swizzle : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
    const uint32_t span = swizzle_bytes(swizzle);
    std::set<uint32_t> places;
    for (uint32_t offset = 0; offset < 2048; ++offset) {
      const uint32_t place = swizzled(swizzle, offset);
      EXPECT_EQ(place / span, offset / span);
      EXPECT_EQ(place % 16, offset % 16);
      EXPECT_EQ(swizzled(swizzle, place), offset);
      EXPECT_EQ(swizzled(swizzle, offset + 8 * span), place + 8 * span) << "the pattern repeats";
      places.insert(place);
    }
    EXPECT_EQ(places.size(), 2048u);
  }
}

TEST(SwizzleTest, AColumnOfChunksMeetsEveryBank) {
  for (Swizzle swizzle : {Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
    std::set<uint32_t> chunks;  // of a line of 32 banks
    for (uint32_t row = 0; row < 8; ++row)
      chunks.insert(swizzled(swizzle, row * swizzle_bytes(swizzle)) % 128 / 16);
    EXPECT_EQ(chunks.size(), 8u);
  }
}

}  // namespace
}  // namespace flashbook
