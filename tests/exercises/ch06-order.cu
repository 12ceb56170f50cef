#include "chapters/06_fp8/exercises/ordered_probabilities.cuh"
#include "common/ptx/wgmma_layout.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

constexpr int kRows = 64, kKeysPerProduct = 32;

/// One warpgroup loads scores in wgmma's layout, rounds them to P and stores each element where wgmma assumes
/// it belongs.
template <int kKeys>
__global__ void round_a_tile(const float* scores,  // [64, kKeys]
                             unsigned char* p) {   // e4m3 [64, kKeys]
  float own[kKeys / 2];
  for (int i = 0; i < kKeys / 2; ++i) {
    const MatrixPlace at = WgmmaM64<kKeys>::d(threadIdx.x, i);
    own[i] = scores[at.row * kKeys + at.column];
  }
  uint32_t rounded[kKeys / kKeysPerProduct][4] = {};
  fp8::round_in_order(rounded, own);
  for (int step = 0; step < kKeys / kKeysPerProduct; ++step)
    for (int i = 0; i < 16; ++i) {
      const MatrixPlace at = WgmmaM64<kKeys>::a8(threadIdx.x, i);
      p[at.row * kKeys + step * kKeysPerProduct + at.column] =
          static_cast<unsigned char>(rounded[step][i / 4] >> i % 4 * 8);
    }
}

class Order : public HopperTest {};

/// Checks P of these scores, with every key in its place.
template <int kKeys>
void expect_order(const std::vector<float>& numbers) {
  const DeviceArray scores(DType::f32, numbers), p(DType::e4m3, numbers.size());
  run(round_a_tile<kKeys>, dim3(1), dim3(hopper::kWarpgroup), 0, scores.as<float>(), p.as<unsigned char>());
  const std::vector<float> got = p.download(), want = rounded(DType::e4m3, numbers);
  Comparison comparison;
  for (int i = 0; i < int(got.size()); ++i)
    comparison.expect(got[i], want[i], 0, [&] {
      return "row " + std::to_string(i / kKeys) + ", key " + std::to_string(i % kKeys) + " of P";
    });
  comparison.finish();
}

template <int kKeys>
void expect_random_order() {
  expect_order<kKeys>(random_numbers(kRows * kKeys, 12, 30));
}

TEST_F(Order, OfTheKeys) {
  std::vector<float> numbers(kRows * 32);  // all exact in e4m3
  for (int i = 0; i < int(numbers.size()); ++i) numbers[i] = float(i % 16 + 1) * (i % 32 < 16 ? 1 : 16);
  expect_order<32>(numbers);
}
TEST_F(Order, Of32Keys) { expect_random_order<32>(); }
TEST_F(Order, Of128Keys) { expect_random_order<128>(); }

}  // namespace
}  // namespace flashbook::testing
