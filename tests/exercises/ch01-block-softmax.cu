#include "chapters/01_naive_attention/exercises/block_softmax.cuh"
#include "tests/exercises/softmax_rows.h"
#include "tests/support/machine.h"

namespace flashbook::testing {
namespace {

class BlockSoftmax : public MachineTest {};

void softmax(const float* scores, float* probabilities, float* lse, int rows, naive::Problem problem) {
  run(naive::block_softmax<float>, dim3(unsigned(rows)), dim3(naive::kBlockThreads), 0, scores, probabilities,
      lse, problem);
}

naive::Problem rows_of(int keys, bool causal) {
  return {.seqlen_q = 8, .seqlen_k = keys, .group = 1, .score_stride = keys, .causal = causal, .scale = 1};
}

TEST_F(BlockSoftmax, Of256Keys) { expect_softmax(softmax, rows_of(256, false)); }
TEST_F(BlockSoftmax, Of1000Keys) { expect_softmax(softmax, rows_of(1000, false)); }
TEST_F(BlockSoftmax, Of100Keys) { expect_softmax(softmax, rows_of(100, false)); }
TEST_F(BlockSoftmax, OfOneKey) { expect_softmax(softmax, rows_of(1, false)); }
TEST_F(BlockSoftmax, UnderACausalMask) { expect_softmax(softmax, rows_of(260, true)); }
TEST_F(BlockSoftmax, OfRowsThatSeeNoKey) { expect_softmax(softmax, rows_of(3, true)); }

TEST_F(BlockSoftmax, InAnyOrderOfItsWarps) {
  for (int seed = 1; seed <= 10; ++seed) {
    const RandomWarpOrder order(seed);
    expect_softmax(softmax, rows_of(700, false));
  }
}

}  // namespace
}  // namespace flashbook::testing
