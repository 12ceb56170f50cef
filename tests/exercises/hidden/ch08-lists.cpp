#include "tests/exercises/ch08-lists.cpp"

namespace flashbook::testing {
TEST(Lists, OfManyKeys) {
  std::vector<int> list;
  for (int i = drawn(1500, 2100, 1); i > 0; --i) list.push_back(i % 9 == 4 ? -1 : i * 37 % 1100);
  list.push_back(drawn(0, 999, 2));
  expect_rows(list, {.table = {9, 8, 1, 0, 5, 3, 2, 11}, .page_rows = 128, .length = 1000});
}
}  // namespace flashbook::testing
