#include "common/attention/cost.h"

#include <gtest/gtest.h>

namespace flashbook {
namespace {

TEST(VisiblePairs, OfASquareCausalMaskIsHalfTheSquare) {
  EXPECT_EQ(visible_pairs({{.seqlen_q = 4096, .seqlen_k = 4096}, Visibility::causal()}), 4096.0 * 4096.0 / 2);
  EXPECT_EQ(visible_pairs({{.seqlen_q = 1, .seqlen_k = 1}, Visibility::causal()}), 0.5);
}

TEST(Flops, AreThoseOfThePapers) {
  // FlashAttention-3's benchmark: 16k tokens, here 8 sequences of 2k, and a hidden size of 2048, 16 heads.
  Spec spec{{.batch = 8, .heads = 16, .kv_heads = 16, .seqlen_q = 2048, .seqlen_k = 2048, .head_dim = 128}};
  EXPECT_EQ(flops(spec), 4.0 * 2048 * 2048 * 128 * 16 * 8);
  spec.visibility = Visibility::causal();
  EXPECT_EQ(flops(spec), 2.0 * 2048 * 2048 * 128 * 16 * 8);
  spec.kv_heads = 1;
  EXPECT_EQ(flops(spec), 2.0 * 2048 * 2048 * 128 * 16 * 8) << "shared keys are multiplied nevertheless";
}

TEST(CompulsoryBytes, CountEveryTensorOnce) {
  Spec spec{{.batch = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 10, .seqlen_k = 30, .head_dim = 64}};
  const double q = 2 * 4 * 10 * 64, kv = 2 * (2 * 2 * 30 * 64), lse = 2 * 4 * 10 * 4;
  spec.dtype = DType::f32;
  EXPECT_EQ(compulsory_bytes(spec), 4 * (q + kv + q) + lse);
  spec.dtype = DType::bf16;
  EXPECT_EQ(compulsory_bytes(spec), 2 * (q + kv + q) + lse);
  spec.dtype = DType::e4m3;
  EXPECT_EQ(compulsory_bytes(spec), q + kv + 2 * q + lse) << "O is BF16";
}

TEST(Cost, DoesNotOverflow) {
  const Spec spec{{.heads = 64, .kv_heads = 64, .seqlen_q = 1 << 20, .seqlen_k = 1 << 20, .head_dim = 256}};
  EXPECT_EQ(flops(spec), 0x1p2 * 0x1p40 * 0x1p8 * 0x1p6);
}

}  // namespace
}  // namespace flashbook
