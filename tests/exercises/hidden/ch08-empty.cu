#include "tests/exercises/ch08-empty.cu"

namespace flashbook::testing {
TEST_F(Empty, RowsOfEveryKind) {
  expect_merged({{true, true}, {false, false}, {true, false}, {false, true}, {true, true}, {false, false}});
}
}  // namespace flashbook::testing
