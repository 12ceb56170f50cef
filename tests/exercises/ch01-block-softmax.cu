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
TEST_F(BlockSoftmax, Of100KeysFarBelowZero) { expect_softmax(softmax, rows_of(100, false), 1, -1000); }
TEST_F(BlockSoftmax, OfOneKey) { expect_softmax(softmax, rows_of(1, false)); }
TEST_F(BlockSoftmax, UnderACausalMask) { expect_softmax(softmax, rows_of(260, true)); }
TEST_F(BlockSoftmax, OfRowsThatSeeNoKey) { expect_softmax(softmax, rows_of(3, true)); }

/// Expects the softmax to be right in each of `orders` orders of the warps; stops at the first failure.
void expect_softmax_in_any_order(int orders, int keys, float shift = 0) {
  for (int seed = 1; seed <= orders; ++seed) {
    const RandomWarpOrder order(seed);
    expect_softmax(softmax, rows_of(keys, false), 1, shift);
    if (BlockSoftmax::HasFailure()) FAIL() << "The warps ran in the order of FLASHBOOK_SIM_SEED=" << seed;
  }
}

TEST_F(BlockSoftmax, InAnyOrderOfItsWarps) { expect_softmax_in_any_order(10, 700); }

}  // namespace
}  // namespace flashbook::testing
