#include "chapters/07_backward/exercises/biased_gradient.cuh"
#include "common/ptx/wgmma_layout.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

constexpr int kKeys = 64, kThreads = 128;  // of one warpgroup
constexpr float kScaleLog2 = 0.18f;

/// Loads a tile of S^T and dP^T of a head in wgmma's layout, computes P^T and dS^T, and stores them. Grid:
/// (key tiles, query tiles, heads).
template <int kQueries>
__global__ void to_ds(float* p,   // [heads, padded_k, padded_q]: S^T, then P^T
                      float* ds,  // [heads, padded_k, padded_q]: dP^T, then dS^T
                      backward::BiasedProblem problem,
                      const float* bias_log2,  // [seqlen_q, seqlen_k]
                      float* d_bias,           // [seqlen_q, seqlen_k], 0 at the start
                      const float* lse_log2,   // [heads, padded_q]
                      const float* d) {        // [heads, padded_q]
  const int padded_q = gridDim.y * kQueries, first_key = blockIdx.x * kKeys,
            first_query = blockIdx.y * kQueries;
  const auto place = [&](int i) {
    const MatrixPlace at = WgmmaM64<kQueries>::d(threadIdx.x, i);
    return (int64_t(blockIdx.z) * gridDim.x * kKeys + first_key + at.row) * padded_q + first_query +
           at.column;
  };
  float own_p[kQueries / 2], own_ds[kQueries / 2];
  for (int i = 0; i < kQueries / 2; ++i) own_p[i] = p[place(i)], own_ds[i] = ds[place(i)];
  const int64_t of_tile = int64_t(blockIdx.z) * padded_q + first_query;
  backward::to_biased_ds<kQueries>(own_p, own_ds, problem, bias_log2, d_bias, lse_log2 + of_tile, d + of_tile,
                                   first_key + WgmmaM64<kQueries>::d(threadIdx.x, 0).row, first_query);
  for (int i = 0; i < kQueries / 2; ++i) p[place(i)] = own_p[i], ds[place(i)] = own_ds[i];
}

template <int kQueries>
void expect_ds(int heads, int seqlen_q, int seqlen_k, bool causal) {
  const int query_tiles = ceil_div(seqlen_q, kQueries), key_tiles = ceil_div(seqlen_k, kKeys);
  const int padded_q = query_tiles * kQueries, padded_k = key_tiles * kKeys;
  const std::vector<float> s = random_numbers(std::size_t(heads) * padded_k * padded_q, 1, 8),
                           dp = random_numbers(s.size(), 2),
                           bias = random_numbers(std::size_t(seqlen_q) * seqlen_k, 3);
  std::vector<float> lse = random_numbers(std::size_t(heads) * padded_q, 4),
                     d = random_numbers(lse.size(), 5);
  for (std::size_t i = 0; i < lse.size(); ++i)  // rows past the end, as `prepare` leaves them
    if (int(i) % padded_q >= seqlen_q) lse[i] = INFINITY, d[i] = 0;
  const DeviceArray p_array(DType::f32, s), ds_array(DType::f32, dp), bias_array(DType::f32, bias),
      d_bias_array(DType::f32, std::vector<float>(bias.size())), lse_array(DType::f32, lse),
      d_array(DType::f32, d);
  run(to_ds<kQueries>, dim3(unsigned(key_tiles), unsigned(query_tiles), unsigned(heads)), dim3(kThreads), 0,
      p_array.as<float>(), ds_array.as<float>(),
      backward::BiasedProblem{seqlen_q, seqlen_k, causal, kScaleLog2},
      static_cast<const float*>(bias_array.as<float>()), d_bias_array.as<float>(),
      static_cast<const float*>(lse_array.as<float>()), static_cast<const float*>(d_array.as<float>()));
  const std::vector<float> got_p = p_array.download(), got_ds = ds_array.download(),
                           got_d_bias = d_bias_array.download();
  std::vector<double> d_bias(bias.size()), size(bias.size());
  Comparison comparison;
  for (std::size_t i = 0; i < s.size(); ++i) {
    const int query = int(i) % padded_q, row = int(i) / padded_q, key = row % padded_k, head = row / padded_k;
    const bool sees = query < seqlen_q && key < seqlen_k && (!causal || key <= query + seqlen_k - seqlen_q);
    const std::size_t pair = std::size_t(query) * seqlen_k + key,
                      of_row = std::size_t(head) * padded_q + query;
    const double p = sees ? std::exp2(double(kScaleLog2) * s[i] + bias[pair] - lse[of_row]) : 0;
    const double ds = p * (double(dp[i]) - d[of_row]);
    if (sees) d_bias[pair] += ds, size[pair] += std::abs(ds) + p;
    const auto where = [&] {
      return " of head " + std::to_string(head) + ", key " + std::to_string(key) + ", query " +
             std::to_string(query);
    };
    comparison.expect(got_p[i], p, 1e-4 * p, [&] { return "P" + where(); });
    comparison.expect(got_ds[i], ds, 1e-4 * (std::abs(ds) + p), [&] { return "dS" + where(); });
  }
  for (std::size_t i = 0; i < bias.size(); ++i)
    comparison.expect(got_d_bias[i], d_bias[i], 1e-4 * size[i], [&] {
      return "dB of query " + std::to_string(int(i) / seqlen_k) + ", key " +
             std::to_string(int(i) % seqlen_k);
    });
  comparison.finish();
}

class ScoreGradient : public HopperTest {};

TEST_F(ScoreGradient, OfOneTile) { expect_ds<64>(1, 64, 64, false); }
TEST_F(ScoreGradient, OfManyTiles) { expect_ds<64>(1, 192, 128, false); }
TEST_F(ScoreGradient, WhereQueriesEndInsideATile) { expect_ds<64>(1, 77, 64, false); }
TEST_F(ScoreGradient, WhereKeysEndInsideATile) { expect_ds<64>(1, 64, 75, false); }
TEST_F(ScoreGradient, UnderACausalMask) { expect_ds<64>(1, 100, 150, true); }

}  // namespace
}  // namespace flashbook::testing
