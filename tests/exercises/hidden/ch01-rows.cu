#include "tests/exercises/ch01-rows.cu"

namespace flashbook::testing {
TEST_F(Rows, NorInRowsOfOtherLengths) { expect_no_sector_too_many(drawn(130, 250, 1), 32 * drawn(1, 6, 2)); }
}  // namespace flashbook::testing
