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

TEST(NaiveAttention, CountsTheTrafficOfSAndP) {
  const Shape shape = shape_with(1, 1, 1000, 1000);  // f16: a million pairs
  const int64_t keys = 1000 * 64 * 2;                // bytes of K, and of its transpose
  EXPECT_EQ(kNaiveAttention.step("textbook").memory_bytes(shape),
            compulsory_bytes(shape) + 1e6 * (4 * 4 + 2 * 2));
  EXPECT_EQ(kNaiveAttention.step("textbook").workspace_bytes(shape), 1000 * 1000 * (4 + 2));
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
