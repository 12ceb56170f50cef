#include "chapters/05_flash_attention_3/host/chapter.h"
#include "chapters/10_many_gpus/host/chapter.h"
#include "tests/chapters/forward.h"
#include "tests/chapters/ranks.h"
#include "tests/support/shapes.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kManyGpus;
const Operation operation_under_test = Operation::forward;
const Chapter* const chapter_before = kManyGpusBefore;

namespace {

/// O and the log-sum-exp of a step, as they lie.
std::vector<std::byte> bits_of(const Chapter& chapter, const Shape& shape, const Inputs& inputs, int step) {
  const UploadedInputs uploaded(Operation::forward, shape, inputs, device::Place::device);
  const Call call(chapter, shape, uploaded, step);
  call.run();
  return call.download_bytes();
}

// ---- results

// One rank alone computes what chapter 5's last step does, bit by bit.
TEST_F(ChapterTest, OneRankIsChapter5) {
  for (const Shape& shape :
       {make_shape(333, 333, 128, true, DType::bf16, 4, 2), make_shape(200, 200, 64, true, DType::f16, 2, 1),
        make_shape(100, 300, 64, false), make_shape(130, 70, 256, true), make_shape(1, 90, 64, true),
        make_shape(2100, 200, 256, true)}) {
    const Inputs inputs = make_inputs(shape, InputKind::drifting, 3);
    const std::vector<std::byte> want =
        bits_of(kFlashAttention3, shape, inputs, kFlashAttention3.last_step());
    for (int step : steps_under_test())
      EXPECT_TRUE(bits_of(kManyGpus, shape, inputs, step) == want) << describe(shape) << ", step " << step;
  }
}

// Parts are merged in float32: the error is that of one rank, however many there are.
TEST_F(ChapterTest, TheErrorIsThatOfOneRank) {
  const Shape shape = make_shape(400, 400, 64, false, DType::bf16, 2, 2);
  const Inputs inputs = make_inputs(shape, InputKind::normal, 12);
  const Reference reference = make_reference(shape, inputs, all_rows(shape));
  for (int step : steps_under_test()) {
    const double one = check(shape, reference, run_once(kManyGpus, shape, inputs, step)).o.relative_rms;
    for (int ranks : {2, 8})
      EXPECT_LE(
          check(shape, reference, run_once(kManyGpus, on_ranks(ranks, shape), inputs, step)).o.relative_rms,
          1.05 * one)
          << "step " << step << ", " << ranks << " ranks";
  }
}

TEST_F(ChapterTest, AnyOrderOfTokensIsRight) { expect_any_order_is_right({2, 4}); }

// e^10000 is no float.
TEST_F(ChapterTest, TheMergeDoesNotOverflow) {
  for (DType dtype : chapter_under_test.dtypes)
    for (InputKind kind : {InputKind::large_scores, InputKind::one_hot, InputKind::all_equal}) {
      const Shape shape = on_ranks(3, make_shape(100, 131, 64, true, dtype, 2, 1));
      expect_right(shape, make_inputs(shape, kind, 3));
    }
}

// A log-sum-exp of 2^20 has no digit left after the point: what is merged by it cannot be right.
TEST_F(ChapterTest, ScoresThatAMergeCannotHoldAreRefused) {
  Options options;
  options.shape = on_ranks(2, make_shape(40, 40, 64));
  options.shape.scale = 0x1p20f;
  options.steps = {2};
  EXPECT_THROW(run(options, kManyGpus, nullptr), InputError);
}

TEST(ManyGpus, OthersTakeOneRankOnly) {
  const Shape two = on_ranks(2, make_shape(100, 100, 64));
  EXPECT_NE(kFlashAttention3.step(5).why_not(two).find("--ranks 1"), std::string::npos);
  Shape none = two;
  none.ranks = 0;
  EXPECT_THROW(validate(none), InputError);
}

TEST_F(ChapterTest, EveryLaunchGivesTheSameBits) {
  const Shape shape = on_ranks(3, make_shape(257, 257, 64, true, DType::bf16, 2, 2));
  for (int step : steps_under_test())
    expect_same_bits(shape, make_inputs(shape, InputKind::normal, 5), step,
                     device::machine() == device::Machine::gpu ? 200 : 2);
}

}  // namespace
}  // namespace flashbook::testing
