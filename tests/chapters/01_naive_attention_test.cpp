#include "chapters/01_naive_attention/host/chapter.h"
#include "common/attention/cost.h"
#include "tests/chapters/forward.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kNaiveAttention;
const Operation operation_under_test = Operation::forward;
const Chapter* const chapter_before = kNaiveAttentionBefore;

namespace {

Spec spec_with(int batch, int heads, int seqlen_q, int seqlen_k) {
  Spec spec = make_spec(seqlen_q, seqlen_k, 64, false, DType::f16, heads, heads);
  spec.batch = batch;
  return spec;
}

TEST(NaiveAttention, CountsTheTrafficOfSAndP) {
  const Spec spec = spec_with(1, 1, 1000, 1000);  // f16: a million pairs
  const int64_t keys = 1000 * 64 * 2;             // bytes of K, and of its transpose
  EXPECT_EQ(kNaiveAttention.step("textbook").memory_bytes(spec),
            compulsory_bytes(spec) + 1e6 * (4 * 4 + 2 * 2));
  EXPECT_EQ(kNaiveAttention.step("textbook").workspace_bytes(spec), 1000 * 1000 * (4 + 2));
  for (int step = 2; step <= 5; ++step) {
    const Step& row = kNaiveAttention.step(step);
    const double more = step == 2 ? double(keys) : 0;
    EXPECT_EQ(row.memory_bytes(spec), compulsory_bytes(spec) + 1e6 * (2 * 4 + 2 * 2) + 2 * more) << step;
    EXPECT_EQ(row.workspace_bytes(spec), (step == 2 ? 6000128 : 6000000) + int64_t(more)) << step;
  }
}

// Rows of S start at multiples of 8 elements, and the warps' row caches are adjacent: the longest row that a
// step supports, alone in its block, exposes an error in either.
TEST_F(ChapterTest, TheLongestRowOfAWarp) {
  const Spec spec = spec_with(1, 1, 3, 40959);
  const Inputs inputs = make_inputs(spec, InputKind::normal, 2);
  const Reference reference = make_reference(spec, inputs, all_rows(spec));
  for (int step : {2, 5})  // those between have the same softmax
    EXPECT_TRUE(check(spec, reference, run_once(kNaiveAttention, spec, inputs, step)).ok()) << step;
}

}  // namespace
}  // namespace flashbook::testing
