#include <algorithm>
#include <cmath>

#include "chapters/01_naive_attention/exercises/alibi_scores.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

using naive::Problem;

class Scores : public MachineTest {};

/// Compares every score of `heads` heads with a sum in double. Masked scores must not be written, nor
/// anything past a row's last key or past the last row, which spare rows follow, as many as a block is high.
void expect_scores(int heads, int head_dim, Problem problem) {
  const int key_heads = heads / problem.group, stride = problem.score_stride;
  const int rows = heads * problem.seqlen_q, spare = naive::kAlibiSide;
  // The inputs have spare rows, too, so that a thread that should have returned reads real numbers and writes
  // a score, which the test detects.
  const std::vector<float> q = random_numbers(std::size_t(rows + spare) * head_dim, 1);
  const std::vector<float> k =
      random_numbers(std::size_t(key_heads * problem.seqlen_k + spare) * head_dim, 2);
  std::vector<float> slopes;
  for (int head = 0; head < heads; ++head) slopes.push_back(0.5f / float(head + 1));
  const DeviceArray q_array(DType::f32, q), k_array(DType::f32, k), slope_array(DType::f32, slopes);
  const DeviceArray scores(DType::f32, std::size_t(rows + spare) * stride);
  const auto blocks = [](int n) { return unsigned(ceil_div(n, naive::kAlibiSide)); };
  run(naive::alibi_scores<float>, dim3(blocks(problem.seqlen_k), blocks(problem.seqlen_q), heads),
      dim3(naive::kAlibiSide, naive::kAlibiSide), 0, q_array.as<float>(), k_array.as<float>(),
      slope_array.as<float>(), scores.as<float>(), head_dim, problem);

  const std::vector<float> got = scores.download();
  const std::string if_stray =
      " (by its own thread, or by one of another query or head: are the mask and both edges checked?)";
  Comparison comparison(if_stray), behind(if_stray);
  for (int head = 0; head < heads; ++head)
    for (int query = 0; query < problem.seqlen_q; ++query)
      for (int key = 0; key < stride; ++key) {
        const float* q_row = &q[(std::size_t(head) * problem.seqlen_q + query) * head_dim];
        const float* k_row =
            &k[(std::size_t(head / problem.group) * problem.seqlen_k + std::min(key, problem.seqlen_k - 1)) *
               head_dim];
        double sum = 0;
        for (int c = 0; c < head_dim; ++c) sum += double(q_row[c]) * k_row[c];
        const int ahead = key - (query + problem.seqlen_k - problem.seqlen_q);  // relative to the query's own
        const bool visible = key < problem.seqlen_k && (!problem.causal || ahead <= 0);
        comparison.expect(got[(std::size_t(head) * problem.seqlen_q + query) * stride + key],
                          visible ? problem.scale * sum - slopes[head] * std::abs(ahead) : NAN, 1e-4, [&] {
                            return "head " + std::to_string(head) + ", query " + std::to_string(query) +
                                   ", key " + std::to_string(key);
                          });
      }
  for (int i = 0; i < spare * stride; ++i)
    behind.expect(got[std::size_t(rows) * stride + i], NAN, 0, [&] {
      return "head " + std::to_string(heads - 1) + ", query " +
             std::to_string(problem.seqlen_q + i / stride) + ", key " + std::to_string(i % stride) +
             ", past the last row,";
    });
  comparison.finish();
  behind.finish();
}

TEST_F(Scores, OfOneWholeBlock) {
  expect_scores(
      1, 64,
      {.seqlen_q = 16, .seqlen_k = 16, .group = 1, .score_stride = 16, .causal = false, .scale = 0.125f});
}

TEST_F(Scores, WhereTheMatrixEndsInsideABlock) {
  expect_scores(
      1, 64,
      {.seqlen_q = 19, .seqlen_k = 35, .group = 1, .score_stride = 40, .causal = false, .scale = 0.125f});
}

TEST_F(Scores, UnderACausalMask) {
  expect_scores(
      1, 64,
      {.seqlen_q = 40, .seqlen_k = 40, .group = 1, .score_stride = 40, .causal = true, .scale = 0.125f});
}

TEST_F(Scores, UnderACausalMaskWithMoreKeysThanQueries) {
  expect_scores(
      2, 128,
      {.seqlen_q = 17, .seqlen_k = 50, .group = 1, .score_stride = 50, .causal = true, .scale = 0.3f});
}

TEST_F(Scores, OfTwoHeads) {
  expect_scores(
      2, 64,
      {.seqlen_q = 10, .seqlen_k = 12, .group = 1, .score_stride = 12, .causal = false, .scale = 0.25f});
}

TEST_F(Scores, OfFourHeadsThatShareTwoHeadsOfKeys) {
  expect_scores(
      4, 64,
      {.seqlen_q = 10, .seqlen_k = 12, .group = 2, .score_stride = 12, .causal = false, .scale = 0.25f});
}

}  // namespace
}  // namespace flashbook::testing
