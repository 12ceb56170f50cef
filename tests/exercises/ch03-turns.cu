#include <numbers>

#include "chapters/03_flash_attention_1/step3_split_k.cuh"
#include "tests/exercises/attention_kernel.h"
#include "tests/support/machine.h"

namespace flashbook::testing {
namespace {

class Turns : public MachineTest {};

void expect_right(const Shape& shape) {
  using Size = flash1::SplitK<64, 32, 64, 4>;
  const flash1::Problem problem = {shape.seqlen_q, shape.seqlen_k, shape.heads / shape.kv_heads,
                                   shape.causal(), shape.scale * std::numbers::log2e_v<float>};
  expect_attention(shape, [&](const __half* q, const __half* k, const __half* v, __half* o, float* lse) {
    run(flash1::split_k<__half, Size>,
        dim3(unsigned(shape.seqlen_q + Size::kRowsQ - 1) / Size::kRowsQ, unsigned(shape.heads)),
        dim3(Size::kThreads), sizeof(flash1::SplitKTiles<__half, Size>), q, k, v, o, lse, problem);
  });
}

TEST_F(Turns, OneTileOfKeys) { expect_right(attention_shape(1, 1, 32, 64, false)); }
TEST_F(Turns, ThreeTilesOfKeys) { expect_right(attention_shape(1, 1, 40, 150, false)); }
TEST_F(Turns, UnderACausalMask) { expect_right(attention_shape(2, 1, 100, 100, true)); }

TEST_F(Turns, InAnyOrderOfTheWarps) {
  for (int seed = 1; seed <= 10 && !HasFailure(); ++seed) {
    const RandomWarpOrder order(seed);
    expect_right(attention_shape(1, 1, 32, 130, false));
    if (HasFailure())
      ADD_FAILURE()
          << "The warps ran in the order of seed " << seed
          << ". If the other tests pass, two warps were at one piece at once, or a barrier is missing.";
  }
}

}  // namespace
}  // namespace flashbook::testing
