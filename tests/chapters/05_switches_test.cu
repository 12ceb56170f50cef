// The switches of chapter 5's last step, each turned the other way.
#include <gtest/gtest.h>

#include "chapters/05_flash_attention_3/host/chapter.h"
#include "chapters/05_flash_attention_3/host/switches.cuh"
#include "common/app/call.h"
#include "common/attention/check.h"
#include "common/attention/inputs.h"
#include "tests/require_gpu.h"
#include "tests/support/shapes.h"

namespace flashbook::testing {

using namespace fa3;

/// Runs a version as if it were the chapter's only step, on shapes of several tiles of queries a block.
template <typename Traits>
void expect_right() {
  Step step = kFlashAttention3.step(5);
  step.workspace = step.zeroed = [](const Shape&) { return int64_t(sizeof(int)); };
  step.run = [](const Shape& shape, const Tensors& tensors, device::Stream stream) {
    run_persistent<__nv_bfloat16, Traits>(shape, tensors, stream);
  };
  Chapter version = kFlashAttention3;
  version.steps = {&step, 1};
  for (const auto& [seqlen_q, seqlen_k] : {std::pair(449, 700), std::pair(700, 449), std::pair(65, 130)}) {
    const Shape shape = make_shape(seqlen_q, seqlen_k, Traits::kHeadDim, Traits::kCausal, DType::bf16, 4, 2);
    SCOPED_TRACE(describe(shape));
    const Inputs inputs = make_inputs(shape, InputKind::normal, 12);
    const Reference reference = make_reference(shape, inputs, all_rows(shape));
    EXPECT_TRUE(check(shape, reference, run_once(version, shape, inputs, 1)).ok());
  }
}

template <bool kCausal>
using D64 = PersistentTraits<64, 3, 128, 8, kCausal>;
template <bool kCausal>
using D128 = PersistentTraits<128, 2, 128, 5, kCausal>;

class Switches : public MachineTest {};

TEST_F(Switches, Pingpong) {
  expect_right<OtherPingpong<D64<true>>>();
  expect_right<OtherPingpong<D128<true>>>();
}
TEST_F(Switches, Rescaling) {
  expect_right<OtherRescaling<D64<true>>>();
  expect_right<OtherRescaling<D128<true>>>();
}
TEST_F(Switches, StoreFromRegisters) {
  expect_right<FromRegisters<D64<false>>>();
  expect_right<FromRegisters<D128<true>>>();
}
TEST_F(Switches, OneLoopForAllTiles) { expect_right<fa3::OneLoop<D64<true>>>(); }
TEST_F(Switches, Schedule) {
  expect_right<OtherOrder<D64<false>>>();
  expect_right<OtherOrder<D64<true>>>();
  expect_right<OtherStay<D128<true>>>();
}

}  // namespace flashbook::testing
