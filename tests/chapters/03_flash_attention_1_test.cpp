#include "chapters/03_flash_attention_1/host/blocks.h"
#include "chapters/03_flash_attention_1/host/chapter.h"
#include "chapters/03_flash_attention_1/host/traffic.h"
#include "common/attention/cost.h"
#include "tests/chapters/forward.h"
#include "tests/support/specs.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kFlashAttention1;
const Operation operation_under_test = Operation::forward;
const Chapter* const chapter_before = kFlashAttention1Before;

namespace {

Spec square(int seqlen, int head_dim, bool causal) { return make_spec(seqlen, seqlen, head_dim, causal); }

// With an RTX 4090's 99 KB of shared memory, tiles are smaller only where the usual ones do not fit.
TEST_F(ChapterTest, SmallerTilesWhereABlockIsGrantedLess) {
  const auto of_this_machine = std::exchange(device::granted_shared_bytes, [] { return int64_t(99 * 1024); });
  for (int head_dim : {64, 128, 256}) {
    const Spec spec = square(150, head_dim, true);
    const int block = head_dim == 256 ? 32 : 64;
    EXPECT_EQ(kFlashAttention1.step("keys_outside").requested(spec),
              fa1::bytes_keys_outside(spec, block, fa1::kRequestedNumber));
    EXPECT_EQ(kFlashAttention1.step("queries_outside").requested(spec),
              fa1::bytes_queries_outside(spec, block, block, fa1::kRequestedNumber));
    EXPECT_EQ(kFlashAttention1.step("split_k").requested(spec),
              fa1::bytes_queries_outside(spec, head_dim == 64 ? 64 : 32, head_dim == 64 ? 128 : 64,
                                         fa1::kRequestedRow));
    expect_right(spec, inputs_of(spec, InputKind::normal, 3));
  }
  device::granted_shared_bytes = of_this_machine;
}

// The formulas of the text, for N = 512, d = 64 and tiles of 64.
TEST(FlashAttention1, CountsWhatTheLoopsAskFor) {
  const double n = 512, d = 64, tiles = 512 / 64;
  const Spec full = square(512, 64, false), causal = square(512, 64, true);
  const double lse = 4 * n;
  // K, V and O are moved once, Q for every tile of keys, and O, m and l between two tiles of keys.
  EXPECT_EQ(fa1::bytes_keys_outside(full, 64),
            2 * n * d * (3 + tiles) + 2 * (tiles - 1) * n * 4 * (d + 2) + lse);
  EXPECT_EQ(fa1::bytes_queries_outside(full, 64, 64), 2 * n * d * (2 + 2 * tiles) + lse);
  // The tiles of queries see 1, 2, ... 8 tiles of keys.
  const double seen = (tiles + 1) / 2;
  EXPECT_EQ(fa1::bytes_keys_outside(causal, 64),
            2 * n * d * (3 + seen) + 2 * (seen - 1) * n * 4 * (d + 2) + lse);
  EXPECT_EQ(fa1::bytes_queries_outside(causal, 64, 64), 2 * n * d * (2 + 2 * seen) + lse);
}

// The sweep runs steps 2 and 3 with other tile sizes.
TEST_F(ChapterTest, EveryBlockSizeIsRightOrDoesNotFit) {
  int fitting = 0;
  for (const BlockSize& size : flash_attention_1_block_sizes())
    for (int head_dim : {64, 128, 256}) {
      Spec spec = square(150, head_dim, true);
      spec.seqlen_k = 170;
      const std::string reason = size.chapter.refusal(1, spec);
      const bool is_split_k = size.name.starts_with("split_k");
      EXPECT_EQ(reason.empty(), is_split_k ? head_dim != 256 : size.shared_bytes(spec) <= 227 * 1024)
          << reason;
      if (!reason.empty()) continue;
      ++fitting;
      const Inputs inputs = make_inputs(spec, InputKind::normal, 4);
      EXPECT_TRUE(
          check(spec, make_reference(spec, inputs, all_rows(spec)), run_once(size.chapter, spec, inputs, 1))
              .ok())
          << size.label << ", " << describe(spec);
    }
  EXPECT_EQ(fitting, 18);  // of 21: 128 rows do not fit at d = 256, and step 3 supports only 64 and 128
}

}  // namespace
}  // namespace flashbook::testing
