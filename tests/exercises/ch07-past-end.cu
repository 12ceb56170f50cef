#include <algorithm>

#include "chapters/07_backward/exercises/key_weights.cuh"
#include "tests/exercises/hopper_kernel.h"

namespace flashbook::testing {
namespace {

void expect_weights(int heads, int seqlen_q, int seqlen_k, float factor) {
  constexpr int kDim = backward::kWeightDim;
  const std::vector<float> q = rounded(DType::f16,
                                       random_numbers(std::size_t(heads) * seqlen_q * kDim, 1, factor)),
                           k = rounded(DType::f16,
                                       random_numbers(std::size_t(heads) * seqlen_k * kDim, 2, 0.2f));
  std::vector<float> lse(std::size_t(heads) * seqlen_q);
  const auto scores_of = [&](int head, int i) {
    std::vector<double> scores(seqlen_k);
    for (int j = 0; j < seqlen_k; ++j)
      for (int c = 0; c < kDim; ++c)
        scores[j] += double(q[(std::size_t(head) * seqlen_q + i) * kDim + c]) *
                     k[(std::size_t(head) * seqlen_k + j) * kDim + c];
    return scores;
  };
  const auto log_sum_exp = [](const std::vector<double>& scores) {
    const double most = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double score : scores) sum += std::exp(score - most);
    return most + std::log(sum);
  };
  for (int head = 0; head < heads; ++head)
    for (int i = 0; i < seqlen_q; ++i)
      lse[std::size_t(head) * seqlen_q + i] = float(log_sum_exp(scores_of(head, i)));
  const DeviceArray q_array(DType::f16, q), k_array(DType::f16, k), lse_array(DType::f32, lse),
      weights(DType::f32, std::size_t(heads) * seqlen_k);
  const unsigned tiles = unsigned(ceil_div(seqlen_k, backward::kWeightThreads));
  run(backward::key_weights<__half>, dim3(tiles, unsigned(heads)), dim3(backward::kWeightThreads), 0,
      q_array.as<__half>(), k_array.as<__half>(), lse_array.as<float>(), weights.as<float>(), seqlen_q,
      seqlen_k);
  const std::vector<float> got = weights.download();
  std::vector<double> want(got.size());  // computed last, so that the kernel cannot find it in memory
  for (int head = 0; head < heads; ++head)
    for (int i = 0; i < seqlen_q; ++i) {
      const std::vector<double> scores = scores_of(head, i);
      const double whole = log_sum_exp(scores);
      for (int j = 0; j < seqlen_k; ++j)
        want[std::size_t(head) * seqlen_k + j] += std::exp(scores[j] - whole);
    }
  Comparison comparison;
  for (std::size_t i = 0; i < got.size(); ++i)
    comparison.expect(got[i], want[i], 1e-3 * (1 + want[i]), [&] {
      return "the weight of head " + std::to_string(i / seqlen_k) + ", key " + std::to_string(i % seqlen_k);
    });
  comparison.finish();
}

class PastEnd : public HopperTest {};

TEST_F(PastEnd, OfWholeTiles) { expect_weights(1, 64, 64, 1); }
TEST_F(PastEnd, OneQueryMore) { expect_weights(1, 33, 64, 1); }
TEST_F(PastEnd, OneQueryLess) { expect_weights(2, 31, 70, 1); }
TEST_F(PastEnd, OfOneQuery) { expect_weights(1, 1, 10, 1); }

}  // namespace
}  // namespace flashbook::testing
