#include "tests/exercises/ch10-groups.cu"

namespace flashbook::testing {
TEST_F(Edges, OfAnyNumberOfRanks) {
  for (int ranks : {1, drawn(5, 7, 1)}) expect_edges(ranks, drawn(3, 40, 2));
}
}  // namespace flashbook::testing
