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
                      .causal = true,
                      .dtype = DType::f16,
                      .scale = default_scale(64)};

/// The model that the chapter reports: so many bytes a pair for S and P, beside what no kernel can avoid.
double bytes(double a_pair) {
  return compulsory_bytes(kShape) + a_pair * visible_pairs(kShape) * kShape.heads;
}

TEST(Traffic, Pairs) { expect_predicted(naive::kPairs, visible_pairs(kShape)); }
TEST(Traffic, Flops) { expect_predicted(naive::kFlops, flops(kShape)); }
TEST(Traffic, InputOutputBytes) { expect_predicted(naive::kInputOutputBytes, bytes(0)); }
TEST(Traffic, ScoreBytes) {
  expect_predicted(naive::kScoreBytes, (4.0 + 2) * kShape.seqlen_q * kShape.seqlen_k * kShape.heads);
}
TEST(Traffic, Step1Bytes) { expect_predicted(naive::kStep1Bytes, bytes(4 * 4 + 2 * 2)); }
TEST(Traffic, Step2Bytes) { expect_predicted(naive::kStep2Bytes, bytes(2 * 4 + 2 * 2)); }
TEST(Traffic, FlopsPerByte) { expect_predicted(naive::kFlopsPerByte, flops(kShape) / bytes(2 * 4 + 2 * 2)); }

}  // namespace
}  // namespace flashbook::testing
