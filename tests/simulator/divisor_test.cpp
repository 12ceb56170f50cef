#include "common/device/divisor.h"

#include <gtest/gtest.h>

#include <random>

namespace flashbook::device {
namespace {

void expect_exact(int n, int value) {
  const Divisor divisor = value;
  ASSERT_EQ(n / divisor, n / value) << n << " / " << value;
  ASSERT_EQ(n % divisor, n % value) << n << " % " << value;
  ASSERT_EQ(divisor, value);
}

TEST(Divisor, DividesExactly) {
  constexpr int kLargest = 2147483647;
  for (int value : {1, 2, 3, 5, 7, 12, 64, 127, 128, 129, 641, 65535, 65536, 1000003, kLargest - 1, kLargest})
    for (int64_t quotient : {0, 1, 2, 3, 1000, 65536, kLargest / value - 1, kLargest / value})
      for (int64_t rest : {-1, 0, 1})  // at a multiple, and on both sides of it
        if (const int64_t n = quotient * value + rest; n >= 0 && n <= kLargest) expect_exact(int(n), value);
}

TEST(Divisor, DividesRandomNumbersExactly) {
  std::mt19937 random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const int value = int(random() >> (1 + random() % 30)) + 1, n = int(random() >> 1);
    if (value > 0) expect_exact(n, value);
  }
}

}  // namespace
}  // namespace flashbook::device
