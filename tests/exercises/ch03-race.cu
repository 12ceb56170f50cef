#include <numbers>

#include "chapters/03_flash_attention_1/exercises/shared_rows.cuh"
#include "tests/exercises/attention_kernel.h"
#include "tests/support/machine.h"

namespace flashbook::testing {
namespace {

class Race : public MachineTest {};

template <int kRowsPerBlock>
void expect_right(const Shape& shape) {
  const fa1::Problem problem = {shape.seqlen_q, shape.seqlen_k, shape.heads / shape.kv_heads, shape.causal(),
                                shape.scale * std::numbers::log2e_v<float>};
  expect_attention(shape, [&](const __half* q, const __half* k, const __half* v, __half* o, float* lse) {
    run(fa1::shared_rows<__half, 64, kRowsPerBlock>,
        dim3(unsigned(ceil_div(shape.seqlen_q, kRowsPerBlock)), unsigned(shape.heads)),
        dim3(32 * fa1::kSharingWarps), 0, q, k, v, o, lse, problem);
  });
}

TEST_F(Race, OneQueryABlock) { expect_right<1>(attention_shape(2, 1, 5, 100, false)); }
TEST_F(Race, FourQueriesABlock) { expect_right<4>(attention_shape(2, 1, 8, 100, false)); }
TEST_F(Race, UnderACausalMask) { expect_right<4>(attention_shape(1, 1, 30, 30, true)); }
TEST_F(Race, RowsThatSeeNoKey) { expect_right<4>(attention_shape(1, 1, 9, 6, true)); }

TEST_F(Race, InAnyOrderOfTheWarps) {
  for (int seed = 1; seed <= 10 && !HasFailure(); ++seed) {
    const RandomWarpOrder order(seed);
    expect_right<3>(attention_shape(1, 1, 7, 50, false));
    if (HasFailure())
      ADD_FAILURE() << "The warps ran in the order of seed " << seed
                    << ". If the other tests pass, a warp overwrote what another had yet to read.";
  }
}

}  // namespace
}  // namespace flashbook::testing
