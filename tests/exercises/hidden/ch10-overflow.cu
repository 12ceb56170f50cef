#include "tests/exercises/ch10-overflow.cu"

namespace flashbook::testing {
TEST_F(Carried, ManyPartsOfAnySize) {
  std::vector<float> parts = random_numbers(8, 3, 100);
  parts.push_back(-INFINITY);
  for (float part : random_numbers(4, 4, 1)) parts.push_back(1000 + part);
  expect_merged(parts, 3);
}
}  // namespace flashbook::testing
