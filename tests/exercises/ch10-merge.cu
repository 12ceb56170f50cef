#include "chapters/10_many_gpus/exercises/part_out_again.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

class TakeOut : public MachineTest {};

/// Log-sum-exps of the state and of the part.
struct Row {
  float left, part;
};

template <int kWidth = 64>
void expect_left(const std::vector<Row>& rows) {
  std::vector<float> left = random_numbers(rows.size() * kWidth, 1), part = random_numbers(left.size(), 2);
  std::vector<float> whole(left.size()), lse(rows.size()), part_lse(rows.size());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const auto [a, b] = rows[row];
    const double top = std::max(a, b);
    const double weight = b == -INFINITY ? 0 : std::exp(b - top),
                 other = a == -INFINITY ? 0 : std::exp(a - top);
    lse[row] = top == -INFINITY ? -INFINITY : float(top + std::log(weight + other));
    part_lse[row] = b;
    for (int column = 0; column < kWidth; ++column) {
      const std::size_t at = row * kWidth + std::size_t(column);
      whole[at] = top == -INFINITY ? 0 : float((weight * part[at] + other * left[at]) / (weight + other));
      if (b == -INFINITY) part[at] = std::numeric_limits<float>::quiet_NaN();  // never written
      if (a == -INFINITY) left[at] = 0;
    }
  }
  const DeviceArray part_o(DType::f32, part), part_lses(DType::f32, part_lse), o(DType::f32, whole),
      lses(DType::f32, lse);
  run(many_gpus::take_out<kWidth>, dim3(unsigned(rows.size())), dim3(32), 0, part_o.as<float>(),
      part_lses.as<float>(), o.as<float>(), lses.as<float>());
  const std::vector<float> got_o = o.download(), got_lse = lses.download();
  Comparison comparison;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    // A weight is off by the rounding of a log-sum-exp, and divided by what is left.
    const double rounding = 2e-5 + 1e-6 * std::abs(double(lse[row]) * (std::isfinite(lse[row]) ? 1 : 0));
    comparison.expect(got_lse[row], rows[row].left, 20 * rounding,
                      [&] { return "the log-sum-exp of row " + std::to_string(row); });
    for (int column = 0; column < kWidth; ++column)
      comparison.expect(
          got_o[row * kWidth + std::size_t(column)], left[row * kWidth + std::size_t(column)], 60 * rounding,
          [&] { return "O of row " + std::to_string(row) + ", column " + std::to_string(column) + ","; });
  }
  comparison.finish();
}

TEST_F(TakeOut, AsMuchAsIsLeft) { expect_left({{1, 1}, {-3, -3}, {0, 0}}); }
TEST_F(TakeOut, PartsOfAnyWeight) { expect_left({{1, 0}, {2, 3}, {-1, 1}, {5, -9}, {0, 0.5f}}); }
TEST_F(TakeOut, LargeLogSumExps) { expect_left({{200, 200.5f}, {-300, -300}, {150, 149}}); }
TEST_F(TakeOut, PartsWithoutKeys) { expect_left({{1, -INFINITY}, {-2, -INFINITY}}); }
TEST_F(TakeOut, NothingIsLeft) { expect_left({{-INFINITY, 2}, {-INFINITY, -100}}); }
TEST_F(TakeOut, NobodySawAnything) { expect_left({{-INFINITY, -INFINITY}}); }

}  // namespace
}  // namespace flashbook::testing
