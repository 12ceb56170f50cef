#include <numbers>

#include "chapters/03_flash_attention_1/exercises/keys_backwards.cuh"
#include "tests/exercises/attention_kernel.h"

namespace flashbook::testing {
namespace {

constexpr int kBlock = 64;

class Loops : public MachineTest {};

fa1::Problem problem_of(const Spec& spec) {
  return {spec.seqlen_q, spec.seqlen_k, spec.heads / spec.kv_heads, spec.causal(),
          spec.scale * std::numbers::log2e_v<float>};
}

void expect_right(const Spec& spec) {
  const auto rows = std::size_t(spec.q_rows());
  const DeviceArray unfinished(DType::f32, rows * 64), row_max(DType::f32, rows), row_sum(DType::f32, rows);
  const fa1::State state = {unfinished.as<float>(), row_max.as<float>(), row_sum.as<float>()};
  expect_attention(spec, [&](const __half* q, const __half* k, const __half* v, __half* o, float* lse) {
    run(fa1::keys_backwards<__half, 64, kBlock>, dim3(unsigned(spec.heads)), dim3(fa1::kThreads),
        sizeof(fa1::Tiles<__half, 64, kBlock>), q, k, v, o, lse, state, problem_of(spec));
  });
}

TEST_F(Loops, OneTileOfKeys) { expect_right(attention_spec(1, 1, 64, 64, false)); }
TEST_F(Loops, TwoTilesOfKeys) { expect_right(attention_spec(1, 1, 64, 128, false)); }
TEST_F(Loops, TheLastKeyInsideATile) { expect_right(attention_spec(2, 1, 100, 210, false)); }
TEST_F(Loops, UnderACausalMask) { expect_right(attention_spec(1, 1, 200, 200, true)); }
TEST_F(Loops, TilesOfQueriesThatSeeNoKey) { expect_right(attention_spec(1, 1, 150, 40, true)); }

}  // namespace
}  // namespace flashbook::testing
