#include "tests/exercises/ch04-swizzle.cu"

namespace flashbook::testing {
TEST(Swizzled, RowsFarDown) {
  const int first = 8 * drawn(100, 200, 1);
  std::set<int> banks;
  for (int row = first; row < first + 8; ++row) {
    const int place = observed(fa2::narrow_swizzled(row, 3)) - first * 64;
    if (place < 0 || place >= 8 * 64) FAIL() << "piece 3 of row " << row << " is stored in another row";
    banks.insert(place / 16 % 8);
  }
  if (banks.size() < 8)
    FAIL() << "piece 3 of rows " << first << " to " << first + 7 << " touches " << banks.size()
           << " of the 8 groups of four banks";
}
}  // namespace flashbook::testing
