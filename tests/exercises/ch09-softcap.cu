#include "chapters/09_masks/exercises/capped_gradient.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

class CappedGradient : public MachineTest {};

void expect_gradient(int rows, int keys, float cap, bool causal) {
  const std::size_t count = std::size_t(rows) * keys;
  const std::vector<float> x = random_numbers(count, 1, 2), dp = random_numbers(count, 2);
  const DeviceArray x_array(DType::f32, x), dp_array(DType::f32, dp), dx(DType::f32, count);
  run(masks::capped_gradient, dim3(unsigned(rows)), dim3(32), 0, x_array.as<float>(), dp_array.as<float>(),
      dx.as<float>(), keys, cap, causal);
  const std::vector<float> got = dx.download();
  Comparison comparison;
  for (int row = 0; row < rows; ++row) {
    const int end = causal ? std::min(row + 1, keys) : keys;
    double sum = 0, d = 0;
    const auto capped = [&](int key) { return std::tanh(double(x[std::size_t(row) * keys + key]) / cap); };
    for (int key = 0; key < end; ++key) {
      sum += std::exp(cap * capped(key));
      d += std::exp(cap * capped(key)) * dp[std::size_t(row) * keys + key];
    }
    for (int key = 0; key < keys; ++key) {
      const std::size_t at = std::size_t(row) * keys + key;
      const double want =
          key < end ? std::exp(cap * capped(key)) / sum * (dp[at] - d / sum) * (1 - capped(key) * capped(key))
                    : 0;
      comparison.expect(got[at], want, 1e-5, [&] {
        return "the gradient of row " + std::to_string(row) + ", key " + std::to_string(key);
      });
    }
  }
  comparison.finish();
}

TEST_F(CappedGradient, WhereAllAreSeen) { expect_gradient(3, 50, 2, false); }
TEST_F(CappedGradient, UnderACausalMask) { expect_gradient(40, 40, 2, true); }
TEST_F(CappedGradient, OfOneKeySeen) { expect_gradient(1, 33, 3, true); }

}  // namespace
}  // namespace flashbook::testing
