#include <algorithm>

#include "chapters/04_flash_attention_2/exercises/transposed_rescale.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

class Rescale : public MachineTest {};

constexpr float kScaleLog2e = 0.18f;  // roughly that of head_dim 64

/// Rescales the state of one warp. In memory, each query's numbers are repeated for every lane that holds it.
template <int kDimBlocks, int kQueryBlocks>
__global__ void rescale_once(const float* new_maxima,  // [32, kQueryBlocks, 2], as the two below
                             float* row_max, float* row_sum,
                             float* out) {  // [32, kDimBlocks, kQueryBlocks, 4]
  const int lane = threadIdx.x;
  float maxima[kQueryBlocks][2];
  fa2::RowState<kQueryBlocks> rows;
  rows.large = false;
  fa2::Blocks<kDimBlocks, kQueryBlocks> blocks;
  const auto for_each_query = [&](auto body) {
    for (int b = 0; b < kQueryBlocks; ++b)
      for (int i = 0; i < 2; ++i) body(b, i, (lane * kQueryBlocks + b) * 2 + i);
  };
  const auto for_each_output = [&](auto body) {
    for (int d = 0; d < kDimBlocks; ++d)
      for (int b = 0; b < kQueryBlocks; ++b)
        for (int e = 0; e < 4; ++e)
          body(blocks[d][b][e], out[((lane * kDimBlocks + d) * kQueryBlocks + b) * 4 + e]);
  };
  for_each_query([&](int b, int i, int at) {
    maxima[b][i] = new_maxima[at];
    rows.max[b][i] = row_max[at];
    rows.sum[b][i] = row_sum[at];
  });
  for_each_output([](float& own, float& stored) { own = stored; });
  fa2::rescale_transposed(maxima, blocks, rows, kScaleLog2e);
  for_each_query([&](int b, int i, int at) {
    row_max[at] = rows.max[b][i];
    row_sum[at] = rows.sum[b][i];
  });
  for_each_output([](float& own, float& stored) { stored = own; });
}

/// Gives a warp's queries old and new maxima, in powers of 2. `rise(query)` is the increase: NaN if the query
/// has still seen no key, infinity if it sees its first. Afterwards the sums must be relative to the stored
/// maximum, which must be within kSlack of the new one.
template <int kDimBlocks, int kQueryBlocks, typename Rise>
void expect_rescaled(Rise rise) {
  const std::vector<float> numbers = random_numbers(std::size_t(32) * kDimBlocks * kQueryBlocks * 4, 3);
  const auto query_of = [](int lane, int b, int i) { return 8 * b + lane % 4 * 2 + i; };
  std::vector<float> before, after, sums, out = numbers;
  for (int lane = 0; lane < 32; ++lane)
    for (int b = 0; b < kQueryBlocks; ++b)
      for (int i = 0; i < 2; ++i) {
        const int query = query_of(lane, b, i);
        const float rises = rise(query);
        before.push_back(std::isfinite(rises) ? float(query) / kScaleLog2e : -INFINITY);
        after.push_back(std::isnan(rises)   ? -INFINITY
                        : std::isinf(rises) ? 5
                                            : before.back() + rises / kScaleLog2e);
        sums.push_back(std::isfinite(rises) ? 1 + std::abs(numbers[sums.size()]) : 0);
        if (std::isfinite(rises)) continue;
        for (int d = 0; d < kDimBlocks; ++d)
          for (int half = 0; half < 2; ++half)
            out[std::size_t((lane * kDimBlocks + d) * kQueryBlocks + b) * 4 + half * 2 + i] = 0;
      }
  const DeviceArray new_maxima(DType::f32, after), max_array(DType::f32, before), sum_array(DType::f32, sums),
      out_array(DType::f32, out);
  run(rescale_once<kDimBlocks, kQueryBlocks>, dim3(1), dim3(32), 0, new_maxima.as<float>(),
      max_array.as<float>(), sum_array.as<float>(), out_array.as<float>());
  const std::vector<float> got_max = max_array.download(), got_sum = sum_array.download(),
                           got_out = out_array.download();

  Comparison comparison;
  for (int lane = 0; lane < 32; ++lane)
    for (int b = 0; b < kQueryBlocks; ++b)
      for (int i = 0; i < 2; ++i) {
        const auto at = std::size_t(lane * kQueryBlocks + b) * 2 + i;
        const auto where = [&](const std::string& what) {
          return what + " of query " + std::to_string(query_of(lane, b, i)) + " in lane " +
                 std::to_string(lane);
        };
        const bool within =
            got_max[at] <= after[at] && (after[at] - got_max[at]) * kScaleLog2e <= fa2::kSlack;
        comparison.expect(within ? after[at] : got_max[at], after[at], 0,
                          [&] { return where("the maximum"); });
        const double factor =
            std::isinf(before[at]) ? 1 : std::exp2((double(before[at]) - got_max[at]) * kScaleLog2e);
        const auto expect = [&](float got, double want, const char* what) {
          comparison.expect(got, want, 1e-4 * std::abs(want) + 1e-35, [&] { return where(what); });
        };
        expect(got_sum[at], sums[at] * factor, "the sum");
        for (int d = 0; d < kDimBlocks; ++d)
          for (int half = 0; half < 2; ++half) {
            const auto place = std::size_t((lane * kDimBlocks + d) * kQueryBlocks + b) * 4 + half * 2 + i;
            expect(got_out[place], out[place] * factor, "an element of O");
          }
      }
  comparison.finish();
}

TEST_F(Rescale, ByLessThanTheSlack) {
  expect_rescaled<4, 1>([](int query) { return float(query % 8); });
}
TEST_F(Rescale, ByALittleMoreThanTheSlack) {
  expect_rescaled<4, 1>([](int query) { return 9 + float(query) / 4; });
}
TEST_F(Rescale, SoFarThatWhatWasBeforeIsNothing) {
  expect_rescaled<4, 2>([](int query) { return query % 2 == 0 ? 3 : 300 + float(query); });
}
TEST_F(Rescale, InSomeQueriesOnly) {
  expect_rescaled<4, 2>([](int query) { return query % 3 == 0 ? 20.0f : 0.0f; });
}
TEST_F(Rescale, QueriesThatHaveSeenNoKeyYet) {
  expect_rescaled<2, 1>([](int query) {
    return query % 4 == 0 ? NAN : query % 4 == 2 ? INFINITY : 10 + float(query);
  });
}

}  // namespace
}  // namespace flashbook::testing
