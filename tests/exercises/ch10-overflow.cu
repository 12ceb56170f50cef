#include "chapters/10_many_gpus/exercises/early_merge.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

class Carried : public MachineTest {};

/// Merges parts with these log-sum-exps into a row, one after another.
void expect_merged(const std::vector<float>& parts, int rows = 2) {
  constexpr int kWidth = 64;
  const std::size_t elements = std::size_t(rows) * kWidth;
  const DeviceArray o(DType::f32, std::vector<float>(elements, 0.0f)),
      lse(DType::f32, std::vector<float>(std::size_t(rows), -INFINITY));
  const auto values_of = [&](std::size_t i) {
    return parts[i] == -INFINITY ? std::vector<float>(elements, 0.0f)
                                 : random_numbers(elements, unsigned(i) + 1);
  };
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const float part = parts[i];
    const DeviceArray part_o(DType::f32, values_of(i)),
        part_lse(DType::f32, std::vector<float>(std::size_t(rows), part));
    run(many_gpus::take_part_in, dim3(unsigned(rows)), dim3(32), 0, part_o.as<float>(), part_lse.as<float>(),
        o.as<float>(), lse.as<float>());
  }
  const std::vector<float> got_o = o.download(), got_lse = lse.download();
  std::vector<double> want(elements, 0.0);  // computed last, so that the kernel cannot find it in memory
  double top = -INFINITY, sum = 0;
  for (float part : parts) top = std::max(top, double(part));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::vector<float> values = values_of(i);
    const double weight = parts[i] == -INFINITY ? 0 : std::exp(parts[i] - top);
    sum += weight;
    for (std::size_t e = 0; e < elements; ++e) want[e] += weight * values[e];
  }
  Comparison comparison;
  for (int row = 0; row < rows; ++row) {
    comparison.expect(got_lse[std::size_t(row)], sum > 0 ? top + std::log(sum) : -INFINITY,
                      1e-4 + 1e-6 * std::abs(sum > 0 ? top : 0),
                      [&] { return "the log-sum-exp of row " + std::to_string(row); });
    for (int column = 0; column < kWidth; ++column) {
      const std::size_t at = std::size_t(row) * kWidth + std::size_t(column);
      comparison.expect(got_o[at], sum > 0 ? want[at] / sum : 0, 2e-3, [&] {
        return "O of row " + std::to_string(row) + ", column " + std::to_string(column) + ",";
      });
    }
  }
  comparison.finish();
}

TEST_F(Carried, SmallLogSumExps) { expect_merged({1, 2, -3, 0.5f}); }
TEST_F(Carried, LargeLogSumExps) { expect_merged({95, 94, 96}); }
TEST_F(Carried, SmallOnesBelowZero) { expect_merged({-150, -151, -149}); }
TEST_F(Carried, PartsFarApart) { expect_merged({2, 300, -200, 299}); }
TEST_F(Carried, PartsWithoutKeys) { expect_merged({-INFINITY, -INFINITY, 3, -INFINITY, 4}); }
TEST_F(Carried, NoKeysAtAll) { expect_merged({-INFINITY, -INFINITY}); }

}  // namespace
}  // namespace flashbook::testing
