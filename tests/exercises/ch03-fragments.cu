#include "chapters/03_flash_attention_1/exercises/fragment_scores.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

class Fragments : public MachineTest {};

template <int kHeadDim, int kStride>
void expect_scores(int queries, int keys) {
  const auto numbers = [](int rows, unsigned seed) {
    return rounded(DType::f16, random_numbers(std::size_t(rows) * kHeadDim, seed));
  };
  const std::vector<float> q = numbers(queries, 1), k = numbers(keys, 2);
  const DeviceArray q_array(DType::f16, q), k_array(DType::f16, k),
      scores(DType::f32, std::size_t(queries) * keys);
  run(fa1::fragment_scores<__half, kHeadDim, kStride>, dim3(unsigned(keys / 16), unsigned(queries / 16)),
      dim3(32), 0, static_cast<const __half*>(q_array.as<__half>()),
      static_cast<const __half*>(k_array.as<__half>()), scores.as<float>());
  const std::vector<float> got = scores.download();
  Comparison comparison;
  for (int query = 0; query < queries; ++query)
    for (int key = 0; key < keys; ++key) {
      double sum = 0;
      for (int c = 0; c < kHeadDim; ++c)
        sum += double(q[std::size_t(query) * kHeadDim + c]) * k[std::size_t(key) * kHeadDim + c];
      comparison.expect(got[std::size_t(query) * keys + key], sum, 1e-3, [&] {
        return "the score of query " + std::to_string(query) + ", key " + std::to_string(key) + ",";
      });
    }
  comparison.finish();
}

TEST_F(Fragments, OneFragmentOfEach) { expect_scores<16, 16>(16, 16); }
TEST_F(Fragments, FourTimesAsManyDimensions) { expect_scores<64, 64>(16, 16); }
TEST_F(Fragments, PaddedRows) { expect_scores<16, 24>(16, 16); }
TEST_F(Fragments, ManyKeys) { expect_scores<16, 16>(32, 64); }
TEST_F(Fragments, AllOfIt) { expect_scores<128, 136>(48, 32); }

}  // namespace
}  // namespace flashbook::testing
