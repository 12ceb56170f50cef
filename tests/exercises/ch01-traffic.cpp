#include "chapters/01_naive_attention/exercises/traffic.h"
#include "common/attention/cost.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

const Shape kShape = {.batch = 1,
                      .heads = 32,
                      .kv_heads = 8,
                      .seqlen_q = 2048,
                      .seqlen_k = 2048,
                      .head_dim = 64,
                      .visibility = Visibility::causal(),
                      .dtype = DType::f16,
                      .scale = default_scale(64)};

/// The model that the chapter reports, without the log-sum-exp: so many bytes a pair for S and P, beside what
/// no kernel can avoid.
double bytes(double a_pair) {
  const double lse = sizeof(float) * double(kShape.q_rows());
  return compulsory_bytes(kShape) - lse + a_pair * visible_pairs(kShape);
}

/// A mistake in the least of the terms, K and V, is 0.9 % of what step 1 moves, and should be seen there.
void expect_product(double predicted, double want) { expect_predicted(predicted, want, 0.005); }

TEST(Traffic, Pairs) { expect_product(naive::kPairs, visible_pairs(kShape, 0, 0)); }
TEST(Traffic, Flops) { expect_product(naive::kFlops, flops(kShape)); }
TEST(Traffic, InputOutputBytes) { expect_product(naive::kInputOutputBytes, bytes(0)); }
TEST(Traffic, ScoreBytes) {
  expect_product(naive::kScoreBytes, (4.0 + 2) * kShape.seqlen_q * kShape.seqlen_k * kShape.heads);
}
TEST(Traffic, Step1Bytes) { expect_product(naive::kStep1Bytes, bytes(4 * 4 + 2 * 2)); }
TEST(Traffic, Step2Bytes) { expect_product(naive::kStep2Bytes, bytes(2 * 4 + 2 * 2)); }
TEST(Traffic, FlopsPerByte) { expect_product(naive::kFlopsPerByte, flops(kShape) / bytes(2 * 4 + 2 * 2)); }

}  // namespace
}  // namespace flashbook::testing
