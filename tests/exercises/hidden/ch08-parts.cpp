// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch08-parts.cpp"

namespace flashbook::testing {
namespace {

TEST(Parts, OfManyShapes) {
  for (int64_t tiles : {1, 3, 16, 50, 131, 133, 200, 4096})
    for (int key_tiles : {2, 9, 100, 513})
      for (int places : {108, 264}) expect_parts(tiles, key_tiles, places);
}

}  // namespace
}  // namespace flashbook::testing
