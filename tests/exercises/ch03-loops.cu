#include <numbers>

#include "chapters/03_flash_attention_1/queries_outside.cuh"
#include "tests/exercises/attention_kernel.h"

namespace flashbook::testing {
namespace {

constexpr int kBlock = 64;

class Loops : public MachineTest {};

flash1::Problem problem_of(const Shape& shape) {
  return {shape.seqlen_q, shape.seqlen_k, shape.heads / shape.kv_heads, shape.causal(),
          shape.scale * std::numbers::log2e_v<float>};
}

void expect_right(const Shape& shape) {
  expect_attention(shape, [&](const __half* q, const __half* k, const __half* v, __half* o, float* lse) {
    run(flash1::queries_outside<__half, 64, kBlock>,
        dim3(unsigned(shape.seqlen_q + kBlock - 1) / kBlock, unsigned(shape.heads)), dim3(flash1::kThreads),
        sizeof(flash1::Tiles<__half, 64, kBlock>), q, k, v, o, lse, problem_of(shape));
  });
}

TEST_F(Loops, OneTileOfKeys) { expect_right(attention_shape(1, 1, 64, 64, false)); }
TEST_F(Loops, TwoTilesOfKeys) { expect_right(attention_shape(1, 1, 64, 128, false)); }
TEST_F(Loops, TheLastKeyInsideATile) { expect_right(attention_shape(2, 1, 100, 210, false)); }
TEST_F(Loops, UnderACausalMask) { expect_right(attention_shape(1, 1, 200, 200, true)); }
TEST_F(Loops, TilesOfQueriesThatSeeNoKey) { expect_right(attention_shape(1, 1, 150, 40, true)); }

/// Two tiles of queries, of three. What only the third would see is NaN: a weight of 0 does not hide it.
TEST_F(Loops, NoTileThatTheseQueriesDoNotSee) {
  const Shape seen = attention_shape(1, 1, 2 * kBlock, 2 * kBlock, true);
  const Inputs inputs = normal_inputs(seen);
  const auto with_unseen = [](std::vector<float> rows) {
    rows.resize(rows.size() / 2 * 3, NAN);
    return DeviceArray(DType::f16, rows);
  };
  const DeviceArray k = with_unseen(inputs.k), v = with_unseen(inputs.v);
  expect_attention(seen, inputs, [&](const __half* q, const __half*, const __half*, __half* o, float* lse) {
    run(flash1::queries_outside<__half, 64, kBlock>, dim3(2), dim3(flash1::kThreads),
        sizeof(flash1::Tiles<__half, 64, kBlock>), q, k.as<__half>(), v.as<__half>(), o, lse,
        problem_of(attention_shape(1, 1, 3 * kBlock, 3 * kBlock, true)));
  });
}

}  // namespace
}  // namespace flashbook::testing
