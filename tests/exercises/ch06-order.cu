#include "chapters/06_fp8/transpose.cuh"
#include "common/ptx/wgmma_layout.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

/// One warpgroup takes its scores, dealt out as wgmma does, rounds them to P and writes down where wgmma
/// takes each element for.
template <int kKeys>
__global__ void round_a_tile(const float* scores,  // [64, kKeys]
                             unsigned char* p) {   // e4m3 [64, kKeys]
  float own[kKeys / 2];
  for (int i = 0; i < kKeys / 2; ++i) {
    const MatrixPlace at = WgmmaM64<kKeys>::d(threadIdx.x, i);
    own[i] = scores[at.row * kKeys + at.column];
  }
  fp8::Fragments<kKeys> rounded;
  fp8::round_probabilities(rounded, own);
  for (int step = 0; step < kKeys / fp8::kDepth; ++step)
    for (int i = 0; i < 16; ++i) {
      const MatrixPlace at = WgmmaM64<kKeys>::a8(threadIdx.x, i);
      p[at.row * kKeys + step * fp8::kDepth + at.column] =
          static_cast<unsigned char>(rounded[step][i / 4] >> i % 4 * 8);
    }
}

class Order : public HopperTest {};

/// P of these scores, in the order in which the transposed V has its keys.
template <int kKeys>
void expect_order(const std::vector<float>& numbers) {
  const DeviceArray scores(DType::f32, numbers), p(DType::e4m3, numbers.size());
  run(round_a_tile<kKeys>, dim3(1), dim3(fp8::kWarpgroup), 0, scores.as<float>(), p.as<unsigned char>());
  const std::vector<float> got = p.download(), want = rounded(DType::e4m3, numbers);
  Comparison comparison;
  for (int i = 0; i < int(got.size()); ++i) {
    const int row = i / kKeys, place = i % kKeys, key = place / 16 * 16 + fp8::key_at(place % 16);
    comparison.expect(got[i], want[row * kKeys + key], 0, [&] {
      return "row " + std::to_string(row) + ", place " + std::to_string(place) + " of P, where key " +
             std::to_string(key) + " belongs,";
    });
  }
  comparison.finish();
}

template <int kKeys>
void expect_random_order() {
  expect_order<kKeys>(random_numbers(fp8::kRowsOfWarpgroup * kKeys, 12, 30));
}

TEST_F(Order, OfTheRows) {
  std::vector<float> numbers(fp8::kRowsOfWarpgroup * 32);
  for (int i = 0; i < int(numbers.size()); ++i) numbers[i] = float(i / 32 + 1);
  expect_order<32>(numbers);
}
TEST_F(Order, Of32Keys) { expect_random_order<32>(); }
TEST_F(Order, Of128Keys) { expect_random_order<128>(); }

}  // namespace
}  // namespace flashbook::testing
