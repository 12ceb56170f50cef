#include "tests/exercises/ch10-merge.cu"

namespace flashbook::testing {
TEST_F(TakeOut, RowsOfEveryKind) {
  std::vector<Row> rows = {{1, -INFINITY}, {-INFINITY, 3}, {-INFINITY, -INFINITY}, {700, 701}};
  for (float number : random_numbers(20, 5)) rows.push_back({number, number / 2});
  expect_left<128>(rows);
}
}  // namespace flashbook::testing
