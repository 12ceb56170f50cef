#include "chapters/07_backward/host/hopper_launch.cuh"
#include "tests/exercises/hopper_kernel.h"
#include "tests/support/machine.h"

namespace flashbook::testing {
namespace {

using Type = __nv_bfloat16;
constexpr int kHeadDim = 64;
using AnyOrder = backward::Hopper<kHeadDim, 128, false>;
using InTurn = backward::Deterministic<AnyOrder>;

Shape shape_of(int seqlen_q, int seqlen_k, int heads = 1, int kv_heads = 1) {
  return {.heads = heads,
          .kv_heads = kv_heads,
          .seqlen_q = seqlen_q,
          .seqlen_k = seqlen_k,
          .head_dim = kHeadDim,
          .dtype = DType::bf16,
          .scale = default_scale(kHeadDim)};
}

/// Inputs of a shape, and dQ in double.
struct Problem {
  std::vector<float> q, k, v, d_o, lse, d;
  std::vector<double> dq;

  explicit Problem(const Shape& shape) : dq(std::size_t(shape.q_elements())) {
    const auto numbers = [&](int64_t count, unsigned seed) {
      return rounded(DType::bf16, random_numbers(std::size_t(count), seed));
    };
    q = numbers(shape.q_elements(), 1), k = numbers(shape.k_elements(), 2);
    v = numbers(shape.k_elements(), 3), d_o = numbers(shape.q_elements(), 4);
    const int64_t padded = backward::problem_of(shape, backward::kWorkspaceRows).padded_q;
    lse.assign(shape.heads * padded, INFINITY), d.assign(lse.size(), 0);
    const auto dot = [](const float* a, const float* b) {
      double sum = 0;
      for (int c = 0; c < kHeadDim; ++c) sum += double(a[c]) * b[c];
      return sum;
    };
    for (int64_t row = 0; row < shape.q_rows(); ++row) {
      const int64_t head = row / shape.seqlen_q;
      const int64_t first_key = head / (shape.heads / shape.kv_heads) * shape.seqlen_k;
      std::vector<double> p(shape.seqlen_k), dp(shape.seqlen_k);
      double sum = 0, row_d = 0;
      for (int j = 0; j < shape.seqlen_k; ++j) {
        sum += p[j] = std::exp(shape.scale * dot(&q[row * kHeadDim], &k[(first_key + j) * kHeadDim]));
        dp[j] = dot(&d_o[row * kHeadDim], &v[(first_key + j) * kHeadDim]);
      }
      for (int j = 0; j < shape.seqlen_k; ++j) row_d += p[j] / sum * dp[j];
      for (int j = 0; j < shape.seqlen_k; ++j)
        for (int c = 0; c < kHeadDim; ++c)
          dq[row * kHeadDim + c] +=
              shape.scale * p[j] / sum * (dp[j] - row_d) * k[(first_key + j) * kHeadDim + c];
      const int64_t place = head * padded + row % shape.seqlen_q;
      lse[place] = float(std::log(sum) * 1.44269504), d[place] = float(row_d);
    }
  }
};

/// dQ as the chapter's kernel leaves it, before and after it is rounded.
struct Gradient {
  std::vector<float> sums, dq;
};

template <typename Config>
Gradient gradient_of(const Shape& shape, const Problem& problem) {
  const DeviceArray q(DType::bf16, problem.q), k(DType::bf16, problem.k), v(DType::bf16, problem.v),
      d_o(DType::bf16, problem.d_o), dq(DType::bf16, problem.q.size()), dk(DType::bf16, problem.k.size()),
      dv(DType::bf16, problem.k.size());
  // Behind the log-sum-exps and D the sums, which are 0 at the start, and the counters.
  std::vector<float> cells(problem.lse);
  cells.insert(cells.end(), problem.d.begin(), problem.d.end());
  const std::size_t first = cells.size(), count = problem.lse.size() * kHeadDim;
  cells.resize(first + count + std::size_t(backward::counters(shape, true)));
  const DeviceArray workspace(DType::f32, cells);
  Tensors tensors;
  tensors.q = q.as<Type>(), tensors.k = k.as<Type>(), tensors.v = v.as<Type>();
  tensors.d_o = d_o.as<Type>(), tensors.dq = dq.as<Type>();
  tensors.dk = dk.as<Type>(), tensors.dv = dv.as<Type>(), tensors.workspace = workspace.as<float>();
  std::string complaint;
  try {
    backward::run_blocks<Type, Config>(shape, tensors, nullptr);
    backward::run_convert<Type, kHeadDim, Config::kQueries>(shape, tensors, nullptr);
    device::synchronize();
  } catch (const device::DeviceError& error) {
    complaint = error.what();
  }
  complaint = observed(complaint);
  if (!complaint.empty()) ADD_FAILURE() << complaint;
  const std::vector<float> left = workspace.download();
  return {{left.begin() + std::ptrdiff_t(first), left.begin() + std::ptrdiff_t(first + count)},
          dq.download()};
}

template <typename Config>
void expect_dq(const Shape& shape) {
  const Problem problem(shape);
  const std::vector<float> got = gradient_of<Config>(shape, problem).dq;
  Comparison comparison;
  for (std::size_t i = 0; i < got.size(); ++i)
    comparison.expect(got[i], problem.dq[i], 0.01 + 0.02 * std::abs(problem.dq[i]), [&] {
      return "dQ of row " + std::to_string(i / kHeadDim) + ", dim " + std::to_string(i % kHeadDim);
    });
  comparison.finish();
}

/// Warps in another order, blocks as they come: the sums must be the same, to the last bit.
void expect_same_sums(const Shape& shape) {
  const Problem problem(shape);
  const std::vector<float> sums = gradient_of<InTurn>(shape, problem).sums;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const RandomWarpOrder order(seed);
    int others = 0;
    const std::vector<float> now = gradient_of<InTurn>(shape, problem).sums;
    for (std::size_t i = 0; i < sums.size(); ++i) others += now[i] != sums[i];
    EXPECT_EQ(others, 0) << "so many sums have other bits in another run";
  }
}

class Adder : public HopperTest {};

TEST_F(Adder, OfOneTile) { expect_dq<AnyOrder>(shape_of(128, 128)); }
TEST_F(Adder, OfManyTilesOfQueries) { expect_dq<AnyOrder>(shape_of(600, 100)); }
TEST_F(Adder, OfManyTilesOfKeys) { expect_dq<AnyOrder>(shape_of(70, 300)); }
TEST_F(Adder, InTurn) { expect_dq<InTurn>(shape_of(150, 300)); }
TEST_F(Adder, TheSameBitsInEveryRun) { expect_same_sums(shape_of(150, 400)); }

}  // namespace
}  // namespace flashbook::testing
