#include "chapters/07_backward/step2_keys_outside.cuh"
#include "tests/exercises/hopper_kernel.h"

namespace flashbook::testing {
namespace {

using Type = __nv_bfloat16;

/// A right row of P and of dS, in double.
struct ScoreRow {
  std::vector<double> p, ds;
};

/// dK and dV of the chapter's kernel, against sums in double. One head.
template <typename C>
void expect_gradients(int seqlen_q, int seqlen_k, bool causal) {
  constexpr int kHeadDim = C::kHeadDim;
  const Shape shape{.seqlen_q = seqlen_q,
                    .seqlen_k = seqlen_k,
                    .head_dim = kHeadDim,
                    .visibility = Visibility::causal_if(causal),
                    .dtype = DType::bf16,
                    .scale = default_scale(kHeadDim)};
  const auto numbers = [&](int rows, unsigned seed) {
    return rounded(DType::bf16, random_numbers(std::size_t(rows) * kHeadDim, seed));
  };
  const std::vector<float> q = numbers(seqlen_q, 1), k = numbers(seqlen_k, 2), v = numbers(seqlen_k, 3),
                           d_o = numbers(seqlen_q, 4);
  const backward::Problem problem = backward::problem_of(shape, C::kQueries);
  // Rows that are none have a log-sum-exp of infinity, as `prepare` leaves them.
  std::vector<float> lse(problem.padded_q, INFINITY), d(problem.padded_q);
  std::vector<double> dk(std::size_t(seqlen_k) * kHeadDim), dv(dk.size());
  for (int i = 0; i < seqlen_q; ++i) {
    const int keys = shape.visible_keys(i);
    if (keys == 0) continue;
    ScoreRow row{std::vector<double>(keys), std::vector<double>(keys)};
    double sum = 0, row_d = 0;
    for (int j = 0; j < keys; ++j) {
      double score = 0;
      for (int c = 0; c < kHeadDim; ++c) score += double(q[i * kHeadDim + c]) * k[j * kHeadDim + c];
      sum += row.p[j] = std::exp(shape.scale * score);
    }
    for (int j = 0; j < keys; ++j) {
      row.p[j] /= sum;
      for (int c = 0; c < kHeadDim; ++c) row.ds[j] += double(d_o[i * kHeadDim + c]) * v[j * kHeadDim + c];
      row_d += row.p[j] * row.ds[j];
    }
    lse[i] = float(std::log(sum) * 1.44269504);
    d[i] = float(row_d);
    for (int j = 0; j < keys; ++j)
      for (int c = 0; c < kHeadDim; ++c) {
        dk[j * kHeadDim + c] += shape.scale * row.p[j] * (row.ds[j] - row_d) * q[i * kHeadDim + c];
        dv[j * kHeadDim + c] += row.p[j] * d_o[i * kHeadDim + c];
      }
  }
  const DeviceArray q_array(DType::bf16, q), k_array(DType::bf16, k), v_array(DType::bf16, v),
      d_o_array(DType::bf16, d_o), lse_array(DType::f32, lse), d_array(DType::f32, d),
      dk_array(DType::bf16, dk.size()), dv_array(DType::bf16, dv.size());
  run(backward::keys_outside<Type, C, false>, dim3(unsigned((seqlen_k + C::kKeys - 1) / C::kKeys)),
      dim3(C::kThreads), C::kSharedBytes, q_array.as<Type>(), k_array.as<Type>(), v_array.as<Type>(),
      d_o_array.as<Type>(), backward::Workspace{lse_array.as<float>(), d_array.as<float>(), nullptr},
      dk_array.as<Type>(), dv_array.as<Type>(), problem);
  const std::vector<float> got_dk = dk_array.download(), got_dv = dv_array.download();
  Comparison comparison;
  for (std::size_t i = 0; i < dk.size(); ++i) {
    const auto where = [&] {
      return "key " + std::to_string(i / kHeadDim) + ", dim " + std::to_string(i % kHeadDim);
    };
    comparison.expect(got_dv[i], dv[i], 0.03 * (1 + std::abs(dv[i])), [&] { return "dV of " + where(); });
    comparison.expect(got_dk[i], dk[i], 0.03 * (1 + std::abs(dk[i])), [&] { return "dK of " + where(); });
  }
  comparison.finish();
}

using Narrow = backward::KeyCut<64, 4, 1, 1, 64, 1>;

class ScoreGradient : public HopperTest {};

TEST_F(ScoreGradient, OfOneTile) { expect_gradients<Narrow>(64, 64, false); }
TEST_F(ScoreGradient, OfManyTiles) { expect_gradients<Narrow>(256, 128, false); }
TEST_F(ScoreGradient, WhereQueriesEndInsideATile) { expect_gradients<Narrow>(77, 64, false); }
TEST_F(ScoreGradient, WhereKeysEndInsideATile) { expect_gradients<Narrow>(64, 75, false); }
TEST_F(ScoreGradient, UnderACausalMask) { expect_gradients<Narrow>(128, 150, true); }

}  // namespace
}  // namespace flashbook::testing
