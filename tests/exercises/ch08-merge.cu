#include "chapters/08_decoding/exercises/merge_with_sink.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

class MergeRow : public MachineTest {};

/// Merges parts with these log-sum-exps, [parts, rows], and a sink logit per row. O is NaN where a part has
/// -inf.
template <int kHeadDim>
void expect_merged(const std::vector<float>& lse, const std::vector<float>& sink) {
  const int rows = int(sink.size()), parts = int(lse.size()) / rows;
  std::vector<float> o = random_numbers(lse.size() * kHeadDim, 11);
  for (std::size_t i = 0; i < lse.size(); ++i)
    if (lse[i] == -INFINITY) std::fill_n(&o[i * kHeadDim], kHeadDim, std::numeric_limits<float>::quiet_NaN());
  const DeviceArray part_o(DType::f32, o), part_lse(DType::f32, lse), sink_logit(DType::f32, sink),
      merged_o(DType::f32, rows * kHeadDim), merged_lse(DType::f32, rows);
  run(decoding::merge_with_sink<kHeadDim>, dim3(rows), dim3(32), 0, part_o.as<float>(), part_lse.as<float>(),
      sink_logit.as<float>(), parts, merged_o.as<float>(), merged_lse.as<float>());
  const std::vector<float> got_o = merged_o.download(), got_lse = merged_lse.download();

  Comparison comparison;
  for (int row = 0; row < rows; ++row) {
    double max = sink[row];
    for (int part = 0; part < parts; ++part) max = std::max(max, double(lse[part * rows + row]));
    const auto weight = [&](int part) {
      const double own = lse[part * rows + row];
      return own == -INFINITY ? 0 : std::exp(own - max);
    };
    double sum = max == -INFINITY ? 0 : std::exp(sink[row] - max);
    for (int part = 0; part < parts; ++part) sum += weight(part);
    const double want_lse = sum > 0 ? max + std::log(sum) : -INFINITY;
    comparison.expect(got_lse[row], want_lse, 1e-5 * std::max(1.0, std::abs(want_lse)),
                      [&] { return "the log-sum-exp of row " + std::to_string(row); });
    for (int column = 0; column < kHeadDim; ++column) {
      double want = 0;
      for (int part = 0; part < parts; ++part)
        if (weight(part) > 0) want += weight(part) * o[(part * rows + row) * kHeadDim + column] / sum;
      comparison.expect(got_o[row * kHeadDim + column], want, 1e-4, [&] {
        return "O of row " + std::to_string(row) + ", column " + std::to_string(column) + ",";
      });
    }
  }
  comparison.finish();
}

/// Returns log-sum-exps of `count` parts and rows. Every `every`th has no keys; with 0, all have some.
std::vector<float> with_empty(std::size_t count, unsigned seed, int every) {
  std::vector<float> lse = random_numbers(count, seed, 3);
  for (std::size_t i = 0; every > 0 && i < count; i += every) lse[i] = -INFINITY;
  return lse;
}

constexpr float kNone = -INFINITY;  // no sink logit

TEST_F(MergeRow, OnePart) { expect_merged<64>(with_empty(3, 1, 0), {kNone, kNone, kNone}); }
TEST_F(MergeRow, TwoParts) { expect_merged<64>(with_empty(6, 2, 0), {1.5f, kNone, -2}); }
TEST_F(MergeRow, PartsOfVeryDifferentWeight) {
  expect_merged<128>({-300, 5, 300, 7, 299, -80, 298, 6}, {301, 200});
}
TEST_F(MergeRow, MorePartsThanLanes) { expect_merged<128>(with_empty(3 * 70, 3, 0), {3, kNone, 6}); }
TEST_F(MergeRow, PartsWithoutKeys) { expect_merged<64>(with_empty(4 * 5, 4, 3), {2, -1, kNone, 3}); }
TEST_F(MergeRow, NoPartHasKeys) { expect_merged<64>(with_empty(2 * 3, 5, 1), {2.5f, kNone}); }

}  // namespace
}  // namespace flashbook::testing
