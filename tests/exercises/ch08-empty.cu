#include "chapters/08_decoding/exercises/merged_prefix.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

constexpr int kWidth = 64;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kMinusInfinity = -INFINITY;

class Empty : public MachineTest {};

/// The parts of a row that have keys.
struct HasKeys {
  bool prefix, own;
};

void expect_merged(const std::vector<HasKeys>& rows) {
  const std::size_t elements = rows.size() * kWidth;
  std::vector<float> o[2] = {random_numbers(elements, 1), random_numbers(elements, 2)};
  std::vector<float> lse[2] = {random_numbers(rows.size(), 3, 3), random_numbers(rows.size(), 4, 3)};
  for (std::size_t row = 0; row < rows.size(); ++row)
    for (int part : {0, 1}) {
      if (part == 0 ? rows[row].prefix : rows[row].own) continue;
      lse[part][row] = kMinusInfinity;
      std::fill_n(&o[part][row * kWidth], kWidth, kNan);  // never written
    }
  const DeviceArray prefix_o(DType::f32, o[0]), prefix_lse(DType::f32, lse[0]), own_o(DType::f32, o[1]),
      own_lse(DType::f32, lse[1]), merged_o(DType::f32, elements), merged_lse(DType::f32, rows.size());
  run(decoding::merge_prefix, dim3(rows.size()), dim3(32), 0, prefix_o.as<float>(), prefix_lse.as<float>(),
      own_o.as<float>(), own_lse.as<float>(), merged_o.as<float>(), merged_lse.as<float>());
  const std::vector<float> got_o = merged_o.download(), got_lse = merged_lse.download();

  Comparison comparison;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const double weight[2] = {std::exp(double(lse[0][row])), std::exp(double(lse[1][row]))};  // 0 of -inf
    const double sum = weight[0] + weight[1];
    const std::string name = "row " + std::to_string(row) + (rows[row].prefix ? "" : ", without a prefix") +
                             (rows[row].own ? "" : ", without keys of its own");
    comparison.expect(got_lse[row], sum > 0 ? std::log(sum) : kMinusInfinity, 1e-5,
                      [&] { return "the log-sum-exp of " + name; });
    for (int column = 0; column < kWidth; ++column) {
      double want = 0;
      for (int part : {0, 1})
        if (weight[part] > 0) want += weight[part] * o[part][row * kWidth + column] / sum;
      comparison.expect(got_o[row * kWidth + column], want, 1e-5,
                        [&] { return "O of " + name + ", column " + std::to_string(column) + ","; });
    }
  }
  comparison.finish();
}

TEST_F(Empty, BothHaveKeys) { expect_merged({{true, true}, {true, true}, {true, true}}); }
TEST_F(Empty, NoKeysOfItsOwn) { expect_merged({{true, false}, {true, false}}); }
TEST_F(Empty, NoPrefix) { expect_merged({{false, true}, {false, true}}); }
TEST_F(Empty, NoKeysAtAll) { expect_merged({{false, false}}); }

}  // namespace
}  // namespace flashbook::testing
