// The rows of the ablation, as the bench runs them: each against the oracle, at every head dimension that it
// takes. Chapter 5's switches have a test of their own, tests/chapters/05_switches_test.cu.
#include "bench/ablation.h"

#include <gtest/gtest.h>

#include <set>

#include "chapters/04_flash_attention_2/host/chapter.h"
#include "chapters/07_backward/host/chapter.h"
#include "chapters/08_decoding/host/chapter.h"
#include "common/app/call.h"
#include "common/app/expected.h"
#include "common/app/report.h"
#include "tests/require_gpu.h"
#include "tests/support/shapes.h"

namespace flashbook::testing {
namespace {

class Ablation : public MachineTest {
 protected:
  /// Runs the rows that take the shape, and notes them.
  void expect_right(Chapter chapter, std::span<const Step> rows, const Shape& shape) {
    chapter.steps = rows;
    const Operation operation = rows[0].operation;
    const Inputs inputs = make_inputs(operation, shape, InputKind::normal, 12);
    const Expected expected(operation, shape, inputs, all_rows(shape));
    const UploadedInputs uploaded(operation, shape, inputs, chapter.runs_on);
    for (int row = 1; row <= chapter.last_step(); ++row) {
      SCOPED_TRACE(chapter.step(row).name + (", " + describe(shape)));
      if (!chapter.step(row).why_not(shape).empty()) continue;
      ran_.insert(chapter.step(row).name);
      const Call call(chapter, shape, uploaded, row);
      call.run();
      EXPECT_EQ(describe_failure(expected.judge(call.download()), "the oracle"), "");
    }
  }

  void expect_all_ran(std::span<const Step> rows) const {
    for (const Step& row : rows) EXPECT_TRUE(ran_.contains(row.name)) << row.name;
  }

 private:
  std::set<std::string> ran_;
};

TEST_F(Ablation, TunedTiles) {
  for (int head_dim : {64, 128, 256})
    for (bool causal : {false, true})
      for (const auto& [seqlen_q, seqlen_k] : {std::pair(200, 330), std::pair(330, 200)})
        expect_right(kFlashAttention2, ablation_04(),
                     make_shape(seqlen_q, seqlen_k, head_dim, causal, DType::bf16, 2, 1));
  expect_all_ran(ablation_04());
}

// In the simulator six tiles of keys are more than its blocks. Up to 1024 queries step 5 has another version
// at d = 128.
TEST_F(Ablation, Gradients) {
  for (bool causal : {false, true}) {
    for (int head_dim : {64, 128})
      expect_right(kBackward, ablation_07(), make_shape(200, 330, head_dim, causal, DType::bf16, 4, 2));
    expect_right(kBackward, ablation_07(), make_shape(1100, 150, 128, causal));
  }
  expect_all_ran(ablation_07());
}

// One sequence has parts, five have none in the simulator.
TEST_F(Ablation, Ring) {
  for (int batch : {1, 5}) {
    Shape shape = make_shape(1, 1000, 128, false, DType::bf16, 4, 1);
    shape.batch = batch;
    expect_right(kDecoding, ablation_08(), shape);
  }
  expect_all_ran(ablation_08());
}

}  // namespace
}  // namespace flashbook::testing
