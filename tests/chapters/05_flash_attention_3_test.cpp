#include "chapters/04_flash_attention_2/host/chapter.h"
#include "chapters/05_flash_attention_3/host/chapter.h"
#include "tests/chapters/forward.h"
#include "tests/chapters/layouts.h"
#include "tests/chapters/padded.h"
#include "tests/support/specs.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kFlashAttention3;
const Operation operation_under_test = Operation::forward;
const Chapter* const chapter_before = kFlashAttention3Before;
const char* const first_padded_slug = "single_warpgroup";

namespace {

Spec spec_with(int heads, int seqlen_q, int seqlen_k, int head_dim, bool causal) {
  return make_spec(seqlen_q, seqlen_k, head_dim, causal, DType::bf16, heads, heads);
}

// A warpgroup that needs fewer tiles of keys than its block, or none, skips tiles that only other warpgroups
// need: in the ring, in the order of turns, and for its queries and its output. This must stay consistent
// over many tiles of queries in a block.
TEST_F(ChapterTest, WarpgroupsThatNeedFewerTilesKeepInStep) {
  for (const Spec& spec : {spec_with(3, 449, 1100, 64, false), spec_with(3, 449, 1100, 64, true),
                           spec_with(3, 1100, 449, 64, true), spec_with(3, 65, 700, 128, false),
                           spec_with(3, 450, 520, 256, true)})
    expect_right(spec, make_inputs(spec, InputKind::normal, 4));
}

// Step 5 has versions for long sequences that the lengths of the other tests do not reach.
TEST_F(ChapterTest, LongSequencesUnderACausalMask) {
  for (int head_dim : {64, 128, 256}) {
    const Spec spec = spec_with(1, 2100, 200, head_dim, true);
    expect_right(spec, make_inputs(spec, InputKind::normal, 8));
  }
}

// Heads are processed in sections that fit the L2 cache: here 32 MB hold 64 heads of 1024 keys, so 65 heads
// make two sections, the second with one head.
TEST_F(ChapterTest, TheLastSectionOfHeadsMayBeSmaller) {
  const Spec spec = spec_with(65, 2, 1024, 128, true);
  expect_right(spec, make_inputs(spec, InputKind::normal, 6));
}

TEST_F(ChapterTest, EveryLaunchGivesTheSameBits) { expect_same_bits(DType::bf16); }

}  // namespace
}  // namespace flashbook::testing
