#include "chapters/04_flash_attention_2/host/chapter.h"
#include "common/app/call.h"
#include "common/app/expected.h"
#include "common/attention/slices.h"
#include "common/numeric/float_formats.h"
#include "tests/chapters/forward.h"
#include "tests/support/specs.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kFlashAttention2;
const Operation operation_under_test = Operation::forward;
const Chapter* const chapter_before = kFlashAttention2Before;

namespace {

Spec spec_with(int seqlen, int head_dim, bool causal) { return make_spec(seqlen, seqlen, head_dim, causal); }

// At most 5 heads per launch, with 2 heads per batch entry: slices of 2, 2 and 1 entries.
TEST_F(ChapterTest, SlicesOfABatchAreTheWhole) {
  Spec spec = make_spec(70, 90, 64, true, DType::bf16, 2, 1);
  spec.batch = 5;
  const Inputs inputs = inputs_of(spec, InputKind::normal, 3);
  const UploadedInputs uploaded(Operation::forward, spec, inputs, device::Place::device);
  int slices = 0;
  const Call call(Operation::forward, spec, uploaded, 0, [&](const Tensors& tensors) {
    run_in_slices(spec, tensors, 5, [&](const Spec& part, const Tensors& t) {
      kFlashAttention2.step("late_maximum").run(part, t, nullptr);
      ++slices;
    });
  });
  call.run();
  EXPECT_EQ(slices, 3);
  const Expected expected(Operation::forward, spec, inputs, all_rows(spec));
  EXPECT_EQ(describe_failure(expected.judge(call.download()), "the oracle"), "");
}

// With the shared memory of an A100, 163 KB, or an RTX 4090, 99 KB, tiles that do not fit at d = 256 are
// smaller.
TEST_F(ChapterTest, SmallerTilesWhereABlockIsGrantedLess) {
  const auto of_this_machine = device::granted_shared_bytes;
  for (int64_t (*granted)() : {+[] { return int64_t(163 * 1024); }, +[] { return int64_t(99 * 1024); }}) {
    device::granted_shared_bytes = granted;
    for (int head_dim : {64, 128, 256})
      for (int step = 1; step <= int(kFlashAttention2.steps.size()); ++step) {
        const std::string reason = kFlashAttention2.refusal(step, spec_with(1, head_dim, false));
        const bool fits = granted() > 160 * 1024 || head_dim < 256 || (step != 3 && step != 4);
        EXPECT_EQ(reason.empty(), fits) << reason;
        EXPECT_EQ(reason.find("160 KB") != std::string::npos, !fits) << reason;
      }
    for (bool causal : {false, true}) {
      const Spec spec = make_spec(150, 203, 256, causal);
      expect_right(spec, make_inputs(spec, InputKind::normal, 4), 5);
    }
  }
  device::granted_shared_bytes = of_this_machine;
}

// The tuned kernels go from the last keys to the first. Scores that grow in that order repeatedly exceed the
// current maximum: by less than the slack, by more, and by so much that a probability relative to it would be
// infinite.
TEST_F(ChapterTest, MaximaThatRiseFromTileToTile) {
  for (int head_dim : {64, 128, 256})
    for (float rise : {4.0f, 12.0f, 400.0f}) {  // in scaled scores, per tile of 64 keys
      const Spec spec = spec_with(192, head_dim, head_dim == 128);
      Inputs inputs = make_inputs(spec, InputKind::normal, 21);
      for (int row = 0; row < spec.seqlen_k; ++row) {
        inputs.q[row * head_dim] = 8;
        inputs.k[row * head_dim] = to_float(to_bf16(rise * float(2 - row / 64) / (8 * spec.scale)));
      }
      expect_right(spec, inputs);
    }
}

}  // namespace
}  // namespace flashbook::testing
