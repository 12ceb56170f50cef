#include "tests/exercises/ch08-waves.cpp"

namespace flashbook::testing {
TEST(Waves, OfManyShapes) {
  for (int64_t tiles : {1, 3, 16, 50, 131, 133, drawn(134, 260, 1)})
    for (int key_tiles : {2, 9, drawn(60, 140, 2)})
      for (int places : {108, 264}) expect_parts(tiles, key_tiles, places);
}
}  // namespace flashbook::testing
