#include "chapters/05_flash_attention_3/exercises/weighted_values.cuh"
#include "tests/exercises/hopper_kernel.h"

namespace flashbook::testing {
namespace {

class Descriptor : public HopperTest {};

template <int kHeadDim>
void expect_products() {
  constexpr int kQueries = fa3::kRowsPerWarpgroup, kKeys = fa3::kMixKeys;
  const std::vector<float> weights = random_halves(kQueries * kKeys, 10),
                           values = random_halves(kKeys * kHeadDim, 11);
  const DeviceArray p(DType::f16, weights), v(DType::f16, values), output(DType::f32, kQueries * kHeadDim);
  run(fa3::weighted_values<__half, kHeadDim>, dim3(1), dim3(fa3::kWarpgroup),
      sizeof(fa3::MixShared<__half, kHeadDim>), tile_map(p, 1, kQueries, kKeys, kQueries, Swizzle::b128),
      tile_map(v, 1, kKeys, kHeadDim, kKeys, Swizzle::b64), output.as<float>());
  if (::testing::Test::HasFatalFailure())
    ADD_FAILURE() << "In wgmma's reports, a row of B is a column of V, and k is a key.";
  const std::vector<float> got = output.download();
  Comparison comparison;
  for (int column = 0; column < kHeadDim; ++column)  // column by column, so that the first error tells most
    for (int row = 0; row < kQueries; ++row) {
      double want = 0;
      for (int key = 0; key < kKeys; ++key)
        want += double(weights[row * kKeys + key]) * values[key * kHeadDim + column];
      comparison.expect(got[row * kHeadDim + column], want, 1e-3, [&] {
        return "column " + std::to_string(column) + ", row " + std::to_string(row) + " of the output";
      });
    }
  comparison.finish();
}

TEST_F(Descriptor, HeadDim32) { expect_products<32>(); }
TEST_F(Descriptor, HeadDim64) { expect_products<64>(); }
TEST_F(Descriptor, HeadDim96) { expect_products<96>(); }
TEST_F(Descriptor, HeadDim160) { expect_products<160>(); }

}  // namespace
}  // namespace flashbook::testing
