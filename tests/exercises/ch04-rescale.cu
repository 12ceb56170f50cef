#include <algorithm>
#include <cmath>
#include <numbers>

#include "chapters/04_flash_attention_2/step1_split_q.cuh"
#include "common/numeric/float_formats.h"
#include "tests/exercises/attention_kernel.h"

namespace flashbook::testing {
namespace {

class Rescale : public MachineTest {};

void expect_right(const Shape& shape, const Inputs& inputs) {
  const fa2::Problem problem = {shape.seqlen_q, shape.seqlen_k, shape.heads / shape.kv_heads,
                                shape.causal(), shape.scale,    shape.scale * std::numbers::log2e_v<float>};
  expect_attention(shape, inputs,
                   [&](const __half* q, const __half* k, const __half* v, __half* o, float* lse) {
                     run(fa2::split_q<__half, 64, 4>,
                         dim3(unsigned(shape.seqlen_q + fa2::kTile - 1) / fa2::kTile, unsigned(shape.heads)),
                         dim3(fa2::kThreads), fa2::split_q_shared_bytes(64, 4), q, k, v, o, lse, problem);
                   });
}

/// Inputs whose scores grow from each tile of 64 keys to the next, by `rise` after the scale. Values shrink
/// as the probabilities grow, as far as f16 goes: what was summed before a rise still counts after it.
Inputs rising(const Shape& shape, float rise) {
  Inputs inputs = normal_inputs(shape);
  const auto tile = [&](std::size_t row) { return row % std::size_t(shape.seqlen_k) / 64; };
  for (std::size_t i = 0; i < inputs.v.size(); ++i) {
    const std::size_t rises = std::size_t(shape.seqlen_k - 1) / 64 - tile(i / 64);
    inputs.v[i] = to_float(to_f16(inputs.v[i] * std::min(std::exp(rise * float(rises)), 8192.0f)));
  }
  for (std::size_t row = 0; row < inputs.q.size() / 64; ++row) inputs.q[row * 64] = 8;
  for (std::size_t row = 0; row < inputs.k.size() / 64; ++row)
    inputs.k[row * 64] = to_float(to_f16(rise * float(tile(row)) / (8 * shape.scale)));
  return inputs;
}

TEST_F(Rescale, ScoresThatDoNotRise) {
  const Shape shape = attention_shape(2, 1, 70, 200, false);
  expect_right(shape, normal_inputs(shape));
}
TEST_F(Rescale, ByALittleMoreThanTheSlack) {
  const Shape shape = attention_shape(1, 1, 64, 256, false);
  expect_right(shape, rising(shape, 7));
}
TEST_F(Rescale, SoFarThatWhatWasBeforeIsNothing) {
  const Shape shape = attention_shape(1, 1, 64, 192, false);
  expect_right(shape, rising(shape, 300));
}
TEST_F(Rescale, InSomeRowsOnly) {
  const Shape shape = attention_shape(1, 1, 64, 192, false);
  Inputs inputs = rising(shape, 20);
  for (int row = 0; row < 64; row += 3) inputs.q[std::size_t(row) * 64] = 0;
  expect_right(shape, inputs);
}
TEST_F(Rescale, RowsThatHaveSeenNoKeyYet) {
  const Shape shape = attention_shape(1, 1, 150, 130, true);
  expect_right(shape, rising(shape, 8));
}

}  // namespace
}  // namespace flashbook::testing
