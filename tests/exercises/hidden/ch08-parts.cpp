#include "tests/exercises/ch08-parts.cpp"

namespace flashbook::testing {
TEST(Parts, OfManyShapes) {
  for (const std::vector<int>& others :
       {std::vector<int>{}, {0, 0, 7}, and_more(30, 12), and_more(drawn(100, 140, 1), 3)})
    for (int longest : {0, 2, 9, 100, drawn(400, 600, 2)})
      for (int heads : {1, 8})
        for (int places : {108, 264}) expect_length(and_more(1, longest, others), heads, places);
}
}  // namespace flashbook::testing
