// Chapter 9's step 8, many queries with a cache.
#include "chapters/09_masks/host/chapter.h"
#include "tests/chapters/caches.h"
#include "tests/chapters/padded.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kMasks;
const Operation operation_under_test = Operation::decode;
const Chapter* const chapter_before = kMasksBefore;
const char* const first_padded_slug = "prompts";

namespace {

constexpr Slug kPrompts{kMasks, "prompts"};

/// Returns eight heads of sequences that all have this many queries, for their last tokens.
Spec prompts_of(int queries, std::vector<int> lengths, int head_dim = 64, int kv_heads = 2) {
  Spec spec = cache_of(std::move(lengths), head_dim);
  spec.seqlen_q = queries, spec.kv_heads = kv_heads;
  return spec;
}

// Groups of 1, 2, 3, 4, 6 and 8 heads: one, two and four heads share a tile.
TEST_F(ChapterTest, GroupsOfAnySizeShareTiles) {
  for (int heads : {1, 2, 3, 4, 6, 8}) {
    Spec spec = make_spec(130, 300, heads % 2 == 0 ? 64 : 128, true, DType::bf16, heads * 2, 2);
    spec.batch = 2;
    expect_right(spec, inputs_of(spec, InputKind::normal, 3));
  }
}

// Fewer queries than a head's rows in a tile, one more, and several tiles; keys that end anywhere. Everything
// past a sequence's last key is NaN.
TEST_F(ChapterTest, SequencesHaveLengthsOfTheirOwn) {
  for (int head_dim : {64, 128, 256})
    for (int queries : {1, 16, 33, 150}) {
      if (head_dim > 64 && queries < 33) continue;
      const Spec spec = prompts_of(queries, {0, 1, 2, 63, 64, 65, 127, 128, 129, 700}, head_dim);
      Inputs inputs = make_inputs(spec, InputKind::normal, 3);
      poison_tails(spec, inputs);
      expect_right(spec, inputs);
    }
}

TEST_F(ChapterTest, AWindowCountsFromEachSequencesLastKey) {
  for (const Window window : {Window{.left = 0, .right = 0}, Window{.left = 127, .right = 0},
                              Window{.left = 37, .right = 20}, Window{.left = -1, .right = 5}}) {
    Spec spec = prompts_of(100, {90, 300, 700, 0}, 128);
    spec.visibility.window = window;
    expect_right(spec, inputs_of(spec, InputKind::normal, 3));
    expect_right(in_pages(spec, 16, 2),
                 scatter_pages(in_pages(spec, 16, 2), make_inputs(spec, InputKind::normal, 3)));
  }
}

// Unused pages and everything past a sequence's last key are NaN. The order of pages, and paging itself, must
// not change a bit.
TEST_F(ChapterTest, PhysicalPagesInAnyOrderGiveTheSameBits) {
  for (const auto& [head_dim, rows] : {std::pair(64, 8), {64, 64}, {64, 512}, {128, 16}, {256, 128}}) {
    const Spec spec = prompts_of(70, {0, 1, rows - 1, rows, rows + 1, 300}, head_dim);
    expect_pages_do_not_show({kPrompts}, spec, make_inputs(spec, InputKind::normal, 3), rows);
  }
}

// Some sequences decode, others process a chunk of their prompt, and one is idle.
TEST_F(ChapterTest, PackedQueriesReadTheirOwnSequences) {
  Spec like = cache_of({1});
  for (const bool by_token : {false, true})
    for (int rows : {0, 16, 128}) {
      expect_packed_right({kPrompts}, {1, 40, 0, 1, 7, 1}, {300, 90, 50, 1, 7, 0}, like, rows, by_token);
      like.visibility.window.left = 33;
      expect_packed_right({kPrompts}, {0, 0, 3, 90, 1, 0}, {20, 0, 200, 90, 1500, 5}, like, rows, by_token);
      like = cache_of({1}, rows == 0 ? 128 : 256);
    }
  expect_packed_right({kPrompts}, {1, 0, 270}, {3000, 0, 700}, cache_of({1}, 128), 64, true);
}

TEST_F(ChapterTest, EveryLaunchGivesTheSameBits) {
  const Spec spec = in_pages(prompts_of(100, {90, 300}, 128), 16, 3);
  expect_same_bits(spec, scatter_pages(spec, make_inputs(without_pages(spec), InputKind::normal, 5)),
                   kPrompts, device::machine() == device::Machine::gpu ? 200 : 2);
}

class TracedPrompts : public ChapterTest {};

TEST_F(TracedPrompts, BreakNoRuleOfMemory) {
  const Spec spec = prompts_of(70, {0, 40, 300});
  expect_right(spec, inputs_of(spec, InputKind::normal, 7));
  for (int rows : {8, 64}) {
    const Spec paged = in_pages(spec, rows, 1);
    expect_right(paged, scatter_pages(paged, make_inputs(spec, InputKind::normal, 3)));
  }
  expect_packed_right({kPrompts}, {1, 40, 0}, {300, 90, 50}, cache_of({1}), 16, true);
}

}  // namespace
}  // namespace flashbook::testing
