/// \file
/// How tensor cores add e4m3, and that plain and exact sums of integers are the same. Of 16-bit elements:
/// matrix_test.cpp.
#include "common/simulator/tensor_core.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/simulator/simulated.h"

namespace flashbook::sim {
namespace {

class TensorCore : public SimulatorTest {
 protected:
  TensorCore() { options().exact = true; }

  /// c + the sum of products of e4m3, in one instruction.
  static float e4m3_dot(float c, const std::vector<std::pair<float, float>>& products) {
    std::vector<float> a(4 * 32), b(32 * 8), d(4 * 8, c);
    for (std::size_t k = 0; k < products.size(); ++k) {
      a[k] = products[k].first;
      b[k * 8] = products[k].second;
    }
    multiply_accumulate(DType::e4m3, 4, 8, 32, a.data(), b.data(), d.data());
    return d[0];
  }
};

TEST_F(TensorCore, E4m3KeepsThirteenFractionBits) {
  EXPECT_EQ(e4m3_dot(0, {{1, 1}, {0.015625f, 0.0078125f}}), 1 + 0x1p-13f);
  EXPECT_EQ(e4m3_dot(0, {{1, 1}, {0.0078125f, 0.0078125f}}), 1.0f);
  EXPECT_EQ(e4m3_dot(0, {{-1, 1}, {-0.0078125f, 0.0078125f}}), -1.0f);
  // Where the small terms would be one large one together, each is cut off alone.
  EXPECT_EQ(e4m3_dot(0, std::vector<std::pair<float, float>>(31, {0.0078125f, 0.0078125f})), 31 * 0x1p-14f);
  std::vector<std::pair<float, float>> terms(31, {0.0078125f, 0.0078125f});
  terms.push_back({1, 1});
  EXPECT_EQ(e4m3_dot(0, terms), 1.0f);
  options().exact = false;
  EXPECT_EQ(e4m3_dot(0, terms), 1 + 31 * 0x1p-14f);
}

TEST_F(TensorCore, E4m3CutsTheAccumulatorOff) {
  EXPECT_EQ(e4m3_dot(1 + 0x1p-14f, {}), 1.0f);
  EXPECT_EQ(e4m3_dot(1 + 0x1p-13f, {}), 1 + 0x1p-13f);
  // The sum of 16 ones and a bit needs an exponent more, and loses the bit at its end.
  EXPECT_EQ(e4m3_dot(1 + 0x1p-13f, {{1, 1}}), 2.0f);
  EXPECT_EQ(e4m3_dot(1 + 0x1p-12f, {{1, 1}}), 2 + 0x1p-12f);
}

TEST_F(TensorCore, E4m3AlignsByTheExponentsOfFactors) {
  // 1.5 * 1.5 = 2.25 has exponent 1, but is aligned as 2^0.
  EXPECT_EQ(e4m3_dot(0, {{1.5f, 1.5f}, {0.015625f, 0.0078125f}}), 2.25f);
  EXPECT_EQ(e4m3_dot(0, {{1.5f, 1.5f}, {0.015625f, 0.0078125f}, {0.015625f, 0.0078125f}}), 2.25f + 0x1p-12f);
}

TEST_F(TensorCore, NotANumberStaysOne) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(e4m3_dot(0, {{nan, 1}})));
  EXPECT_TRUE(std::isnan(e4m3_dot(nan, {{1, 1}})));
  EXPECT_EQ(e4m3_dot(0, {{448, 448}}), 448.0f * 448);
}

TEST_F(TensorCore, IntegersAreTheSamePlainAndExact) {
  constexpr int kRows = 64, kColumns = 40;
  for (DType type : {DType::f16, DType::bf16, DType::e4m3}) {
    const int inner = type == DType::e4m3 ? 32 : 16;
    std::vector<float> a(std::size_t(kRows * inner)), b(std::size_t(inner * kColumns));
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = float(int(i * 7 % 13) - 6);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = float(int(i * 5 % 11) - 5);
    std::vector<float> plain(kRows * kColumns, 3), exact = plain;
    multiply_accumulate(type, kRows, kColumns, inner, a.data(), b.data(), exact.data());
    options().exact = false;
    multiply_accumulate(type, kRows, kColumns, inner, a.data(), b.data(), plain.data());
    options().exact = true;
    EXPECT_EQ(plain, exact);
    float sum = 3;
    for (int k = 0; k < inner; ++k) sum += a[std::size_t(5 * inner + k)] * b[std::size_t(k * kColumns + 33)];
    EXPECT_EQ(plain[5 * kColumns + 33], sum);
  }
}

}  // namespace
}  // namespace flashbook::sim
