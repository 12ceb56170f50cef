#include <numeric>

#include "chapters/07_backward/exercises/value_gradient.cuh"
#include "tests/exercises/hopper_kernel.h"

namespace flashbook::testing {
namespace {

void expect_gradient(int seqlen_q, int seqlen_k, const std::vector<int>& lengths) {
  constexpr int kDim = backward::kValueDim;
  const int batch = int(lengths.size());
  const auto numbers = [&](int rows, unsigned seed, float factor) {
    return rounded(DType::f16, random_numbers(std::size_t(batch) * rows * kDim, seed, factor));
  };
  const std::vector<float> q = numbers(seqlen_q, 1, 1), k = numbers(seqlen_k, 2, 0.2f),
                           d_o = numbers(seqlen_q, 3, 1);
  std::vector<float> lse(std::size_t(batch) * seqlen_q);
  const auto exponentials = [&](int b, int i) {
    std::vector<double> p(lengths[b]);
    for (int j = 0; j < lengths[b]; ++j) {
      double score = 0;
      for (int c = 0; c < kDim; ++c)
        score += double(q[(std::size_t(b) * seqlen_q + i) * kDim + c]) *
                 k[(std::size_t(b) * seqlen_k + j) * kDim + c];
      p[j] = std::exp(score);
    }
    return p;
  };
  for (int b = 0; b < batch; ++b)
    for (int i = 0; i < seqlen_q; ++i) {
      const std::vector<double> p = exponentials(b, i);  // -inf without keys
      lse[std::size_t(b) * seqlen_q + i] = float(std::log(std::accumulate(p.begin(), p.end(), 0.0)));
    }
  device::Buffer lengths_buffer(device::Place::device, lengths.size() * sizeof(int));
  lengths_buffer.upload(std::as_bytes(std::span(lengths)));
  const DeviceArray q_array(DType::f16, q), k_array(DType::f16, k), d_o_array(DType::f16, d_o),
      lse_array(DType::f32, lse), dv(DType::f32, k.size());
  const unsigned tiles = unsigned(ceil_div(seqlen_k, backward::kValueKeys));
  run(backward::value_gradient<__half>, dim3(tiles, unsigned(batch)), dim3(backward::kValueDim), 0,
      q_array.as<__half>(), k_array.as<__half>(), d_o_array.as<__half>(), lse_array.as<float>(),
      static_cast<const int*>(lengths_buffer.data()), dv.as<float>(), seqlen_q, seqlen_k);
  const std::vector<float> got = dv.download();
  std::vector<double> want(k.size());  // computed last, so that the kernel cannot find it in memory
  for (int b = 0; b < batch; ++b)
    for (int i = 0; i < seqlen_q; ++i) {
      const std::vector<double> p = exponentials(b, i);
      const double sum = std::accumulate(p.begin(), p.end(), 0.0);
      for (int j = 0; j < lengths[b]; ++j)
        for (int c = 0; c < kDim; ++c)
          want[(std::size_t(b) * seqlen_k + j) * kDim + c] +=
              p[j] / sum * d_o[(std::size_t(b) * seqlen_q + i) * kDim + c];
    }
  Comparison comparison;
  for (std::size_t i = 0; i < got.size(); ++i)
    comparison.expect(got[i], want[i], 1e-3 * (1 + std::abs(want[i])), [&] {
      return "dV of batch entry " + std::to_string(i / kDim / seqlen_k) + ", key " +
             std::to_string(i / kDim % seqlen_k) + ", dim " + std::to_string(i % kDim);
    });
  comparison.finish();
}

class Unseen : public HopperTest {};

TEST_F(Unseen, WhereAllAreSeen) { expect_gradient(70, 40, {40, 40}); }
TEST_F(Unseen, ALengthInsideATile) { expect_gradient(40, 48, {41}); }
TEST_F(Unseen, ALengthAtATilesEnd) { expect_gradient(40, 48, {32, 48}); }
TEST_F(Unseen, ALengthOfZero) { expect_gradient(20, 20, {20, 0}); }

}  // namespace
}  // namespace flashbook::testing
