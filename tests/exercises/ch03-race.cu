#include <numbers>

#include "chapters/03_flash_attention_1/exercises/shared_rows.cuh"
#include "tests/exercises/attention_kernel.h"
#include "tests/support/machine.h"

namespace flashbook::testing {
namespace {

class Race : public MachineTest {};

template <int kRowsPerBlock>
void expect_right(const Spec& spec) {
  const fa1::Problem problem = {spec.seqlen_q, spec.seqlen_k, spec.heads / spec.kv_heads, spec.causal(),
                                spec.scale * std::numbers::log2e_v<float>};
  expect_attention(spec, [&](const __half* q, const __half* k, const __half* v, __half* o, float* lse) {
    run(fa1::shared_rows<__half, 64, kRowsPerBlock>,
        dim3(unsigned(ceil_div(spec.seqlen_q, kRowsPerBlock)), unsigned(spec.heads)),
        dim3(32 * fa1::kSharingWarps), 0, q, k, v, o, lse, problem);
  });
}

TEST_F(Race, OneQueryABlock) { expect_right<1>(attention_spec(2, 1, 5, 100, false)); }
TEST_F(Race, FourQueriesABlock) { expect_right<4>(attention_spec(2, 1, 8, 100, false)); }
TEST_F(Race, UnderACausalMask) { expect_right<4>(attention_spec(1, 1, 30, 30, true)); }
TEST_F(Race, RowsThatSeeNoKey) { expect_right<4>(attention_spec(1, 1, 9, 6, true)); }

TEST_F(Race, InAnyOrderOfTheWarps) {
  for (int seed = 1; seed <= 10 && !HasFailure(); ++seed) {
    const RandomWarpOrder order(seed);
    expect_right<3>(attention_spec(1, 1, 7, 50, false));
    if (HasFailure())
      ADD_FAILURE() << "The warps ran in the order of seed " << seed
                    << ". If the other tests pass, a warp overwrote what another had yet to read.";
  }
}

}  // namespace
}  // namespace flashbook::testing
