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

TEST(NaiveAttention, SaysWhatItCannotRun) {
  const auto why_not = [](const Shape& shape, int step) { return kNaiveAttention.step(step).why_not(shape); };
  EXPECT_NE(why_not(shape_with(70000, 1, 1, 1), 1).find("--batch"), std::string::npos);
  EXPECT_NE(why_not(shape_with(1, 1, 16 * 65535 + 1, 1), 1).find("--seqlen is at most 1048560"),
            std::string::npos);
  EXPECT_EQ(why_not(shape_with(1, 1, 16 * 65535 + 1, 1), 2), "");
  EXPECT_EQ(why_not(shape_with(1, 1, 1, 40960), 2), "");
  EXPECT_NE(why_not(shape_with(1, 1, 1, 40961), 2).find("--step 1"), std::string::npos);
  EXPECT_EQ(why_not(shape_with(1, 1, 1, 40961), 1), "");
  Shape e4m3 = shape_with(1, 1, 1, 1);
  e4m3.dtype = DType::e4m3;
  EXPECT_NE(why_not(e4m3, 1).find("--dtype"), std::string::npos);
}

TEST(NaiveAttention, CountsTheTrafficOfSAndP) {
  const Shape shape = shape_with(1, 1, 1000, 1000);  // f16: a million pairs
  EXPECT_EQ(kNaiveAttention.step(1).memory_bytes(shape), compulsory_bytes(shape) + 1e6 * (4 * 4 + 2 * 2));
  EXPECT_EQ(kNaiveAttention.step(2).memory_bytes(shape), compulsory_bytes(shape) + 1e6 * (2 * 4 + 2 * 2));
  EXPECT_EQ(kNaiveAttention.step(2).workspace_bytes(shape), 1000 * 1000 * (4 + 2));
}

// Rows of S in step 2 start at multiples of 8 elements and a warp's row cache ends where the next one's
// begins: the longest row that step 2 takes, alone in its block, is where an error in either shows.
TEST_F(ChapterTest, TheLongestRowOfStep2) {
  Shape shape = shape_with(1, 1, 3, 40959);
  const Inputs inputs = make_inputs(shape, InputKind::normal, 2);
  const Reference reference = make_reference(shape, inputs, all_rows(shape));
  EXPECT_TRUE(check(shape, reference, run_once(kNaiveAttention, shape, inputs, 2)).ok());
}

}  // namespace
}  // namespace flashbook::testing
