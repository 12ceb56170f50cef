#include "chapters/01_naive_attention/host/chapter.h"
#include "common/attention/cost.h"
#include "tests/chapters/forward.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kNaiveAttention;
const Operation operation_under_test = Operation::forward;
const Chapter* const chapter_before = kNaiveAttentionBefore;

namespace {

Shape shape_with(int batch, int heads, int seqlen_q, int seqlen_k) {
  Shape shape = make_shape(seqlen_q, seqlen_k, 64, false, DType::f16, heads, heads);
  shape.batch = batch;
  return shape;
}

std::string why_not(const Shape& shape, int step) { return kNaiveAttention.refusal(step, shape); }

TEST(NaiveAttention, SaysWhatItCannotRun) {
  Shape many_heads = shape_with(1, 1, 1, 1);
  many_heads.heads = many_heads.kv_heads = 65536;
  EXPECT_NE(why_not(many_heads, 1).find("--heads is at most 65535"), std::string::npos);
  const struct {
    int step, queries;  // per block
    const char* most;
  } blocks[] = {
      {1, 16, "1048560"}, {2, 8, "524280"}, {3, 32, "2097120"}, {4, 128, "8388480"}, {5, 128, "8388480"}};
  for (const auto& [step, queries, most] : blocks) {
    EXPECT_EQ(why_not(shape_with(1, 1, queries * 65535, 1), step), "") << step;
    const std::string said = why_not(shape_with(1, 1, queries * 65535 + 1, 1), step);
    EXPECT_NE(said.find("--seqlen is at most " + std::string(most)), std::string::npos) << step << said;
  }
  EXPECT_EQ(why_not(shape_with(1, 1, 1, 40961), 1), "");
  for (int step = 2; step <= kNaiveAttention.last_step(); ++step) {
    EXPECT_EQ(why_not(shape_with(1, 1, 1, 40960), step), "") << step;
    EXPECT_NE(why_not(shape_with(1, 1, 1, 40961), step).find("--step 1"), std::string::npos) << step;
  }
  Shape e4m3 = shape_with(1, 1, 1, 1);
  e4m3.dtype = DType::e4m3;
  EXPECT_EQ(why_not(e4m3, 1), "chapter 1 does not support e4m3 tensors: give f16 or bf16, or use chapter 6");
}

// The next chapter is compared with the last step that supports its type.
TEST(NaiveAttention, TensorCoresTakeNoFloat32) {
  Shape shape = shape_with(1, 1, 1, 1);
  EXPECT_EQ(kNaiveAttention.last_step_for(shape), 5);
  shape.dtype = DType::f32;
  EXPECT_EQ(kNaiveAttention.last_step_for(shape), 4);
  for (int step = 1; step < 5; ++step) EXPECT_EQ(why_not(shape, step), "") << step;
  EXPECT_EQ(why_not(shape, 5),
            "step 5 does not support float32 tensors: give f16 or bf16, or use steps 1 to 4");
}

TEST(NaiveAttention, CountsTheTrafficOfSAndP) {
  const Shape shape = shape_with(1, 1, 1000, 1000);  // f16: a million pairs
  const int64_t keys = 1000 * 64 * 2;                // bytes of K, and of its transpose
  EXPECT_EQ(kNaiveAttention.step(1).memory_bytes(shape), compulsory_bytes(shape) + 1e6 * (4 * 4 + 2 * 2));
  EXPECT_EQ(kNaiveAttention.step(1).workspace_bytes(shape), 1000 * 1000 * (4 + 2));
  for (int step = 2; step <= 5; ++step) {
    const Step& row = kNaiveAttention.step(step);
    const double more = step == 2 ? double(keys) : 0;
    EXPECT_EQ(row.memory_bytes(shape), compulsory_bytes(shape) + 1e6 * (2 * 4 + 2 * 2) + 2 * more) << step;
    EXPECT_EQ(row.workspace_bytes(shape), (step == 2 ? 6000128 : 6000000) + int64_t(more)) << step;
  }
}

// Rows of S start at multiples of 8 elements, and the warps' row caches are adjacent: the longest row that a
// step supports, alone in its block, exposes an error in either.
TEST_F(ChapterTest, TheLongestRowOfAWarp) {
  const Shape shape = shape_with(1, 1, 3, 40959);
  const Inputs inputs = make_inputs(shape, InputKind::normal, 2);
  const Reference reference = make_reference(shape, inputs, all_rows(shape));
  for (int step = 2; step <= 5; ++step)
    EXPECT_TRUE(check(shape, reference, run_once(kNaiveAttention, shape, inputs, step)).ok()) << step;
}

}  // namespace
}  // namespace flashbook::testing
