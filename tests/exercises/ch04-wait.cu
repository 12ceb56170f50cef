#include <algorithm>

#include "chapters/04_flash_attention_2/exercises/two_stages.cuh"
#include "tests/exercises/exercise.h"
#ifndef __CUDACC__
#include "common/simulator/in_flight.h"
#endif

namespace flashbook::testing {
namespace {

class Wait : public MachineTest {};

void expect_means(int heads, int seqlen) {
  const std::vector<float> values =
      rounded(DType::f16, random_numbers(std::size_t(heads) * seqlen * fa2::kMeanDim, 4));
  const DeviceArray v(DType::f16, values);
  const DeviceArray mean(DType::f32, std::size_t(heads) * fa2::kMeanDim);
  run(fa2::mean_of_values<__half>, dim3(unsigned(heads)), dim3(fa2::kMeanThreads), fa2::kMeanSharedBytes,
      v.as<__half>(), mean.as<float>(), seqlen);
  const std::vector<float> means = mean.download();
  Comparison comparison;
  for (int head = 0; head < heads; ++head)
    for (int c = 0; c < fa2::kMeanDim; ++c) {
      double sum = 0;
      for (int row = 0; row < seqlen; ++row)
        sum += values[(std::size_t(head) * seqlen + row) * fa2::kMeanDim + c];
      comparison.expect(means[std::size_t(head) * fa2::kMeanDim + c], sum / seqlen, 1e-4, [&] {
        return "the mean of head " + std::to_string(head) + ", column " + std::to_string(c);
      });
    }
  comparison.finish();
}

TEST_F(Wait, OneTile) { expect_means(2, 32); }
TEST_F(Wait, TwoTiles) { expect_means(1, 64); }
TEST_F(Wait, ManyTiles) { expect_means(3, 320); }
TEST_F(Wait, TheLastRowInsideATile) { expect_means(2, 75); }
TEST_F(Wait, OneRow) { expect_means(1, 1); }

/// Values that count how many are added while a copy is in flight.
struct Watched {
  __half value;
};
__device__ float to_float(Watched) {
#ifdef __CUDACC__
  return 1;  // not observable on a GPU
#else
  return sim::may_have_copies_in_flight() ? 1.0f : 0.0f;
#endif
}

TEST_F(Wait, TheNextTileTravelsMeanwhile) {
  constexpr int kTiles = 10, kSeqlen = kTiles * fa2::kMeanRows;
  const DeviceArray v(DType::f16, std::vector<float>(std::size_t(kSeqlen) * fa2::kMeanDim));
  const DeviceArray mean(DType::f32, fa2::kMeanDim);
  run(fa2::mean_of_values<Watched>, dim3(1), dim3(fa2::kMeanThreads), fa2::kMeanSharedBytes, v.as<Watched>(),
      mean.as<float>(), kSeqlen);
  const std::vector<float> shares = mean.download();
  const float least = *std::min_element(shares.begin(), shares.end());
  // Every tile except the last can have the next one in flight; half of that is enough.
  if (!(least >= 0.5f * (kTiles - 1) / kTiles))
    ADD_FAILURE()
        << "while " << std::lround(100 * (1 - least))
        << " % of the values are added, no copy is in flight: the kernel has waited for all of them";
}

}  // namespace
}  // namespace flashbook::testing
