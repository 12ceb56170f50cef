#include "chapters/05_flash_attention_3/exercises/squared_norms.cuh"
#include "tests/exercises/hopper_kernel.h"
#include "tests/support/machine.h"

namespace flashbook::testing {
namespace {

class Phase : public HopperTest {};

void expect_norms(int heads, int keys) {
  const std::vector<float> numbers = random_halves(std::size_t(heads) * keys * fa3::kNormDim, 8);
  const DeviceArray tensor(DType::f16, numbers), norms(DType::f32, std::size_t(heads) * keys);
  run(fa3::squared_norms<__half>, dim3(unsigned(heads)), dim3(fa3::kNormThreads),
      sizeof(fa3::NormShared<__half>),
      tile_map(tensor, heads, keys, fa3::kNormDim, fa3::kNormRows, Swizzle::b128), norms.as<float>(), keys);
  const std::vector<float> got = norms.download();
  Comparison comparison;
  for (std::size_t row = 0; row < got.size(); ++row) {
    double want = 0;
    for (int c = 0; c < fa3::kNormDim; ++c)
      want += double(numbers[row * fa3::kNormDim + c]) * numbers[row * fa3::kNormDim + c];
    comparison.expect(got[row], want, 1e-4 * want, [&] {
      return "head " + std::to_string(row / keys) + ", key " + std::to_string(row % keys);
    });
  }
  comparison.finish();
}

TEST_F(Phase, OneTile) { expect_norms(2, 32); }
TEST_F(Phase, AsManyTilesAsStages) { expect_norms(1, 96); }
TEST_F(Phase, OneTileMore) { expect_norms(2, 128); }
TEST_F(Phase, ManyRounds) { expect_norms(1, 600); }
TEST_F(Phase, InAnyOrderOfTheWarps) {
  for (int seed = 1; seed <= 10 && !HasFailure(); ++seed) {
    const RandomWarpOrder order(seed);
    expect_norms(1, 250);
    if (HasFailure()) ADD_FAILURE() << "The warps ran in the order of seed " << seed << ".";
  }
}

}  // namespace
}  // namespace flashbook::testing
