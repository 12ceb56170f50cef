#include "tests/exercises/ch10-owner.cpp"

namespace flashbook::testing {
TEST(Owner, OfManySizes) {
  for (int ranks : {1, 2, 5, 8})
    for (int block : {1, 3, drawn(4, 20, 1)})
      for (int tokens : {ranks * block - 1, 2 * ranks * block + 1, drawn(100, 300, 2)}) {
        expect_owners(tokens, block, ranks);
        expect_places(tokens, block, ranks);
        expect_counts(tokens, block, ranks);
      }
}
}  // namespace flashbook::testing
