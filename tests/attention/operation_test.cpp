#include "common/attention/operation.h"

#include <gtest/gtest.h>

#include "common/attention/cost.h"
#include "common/attention/inputs.h"
#include "common/attention/tensors.h"

namespace flashbook {
namespace {

TEST(Operation, BackwardIsFiveProducts) {
  const Spec spec{{.batch = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 30, .seqlen_k = 50}};
  EXPECT_EQ(flops(spec, Operation::backward), 2.5 * flops(spec));
  EXPECT_EQ(flops(spec, Operation::decode), flops(spec));
  const double q = 2 * 4 * 30 * 64 * 2, k = 2 * 2 * 50 * 64 * 2, lse = 2 * 4 * 30 * 4;
  EXPECT_EQ(compulsory_bytes(spec, Operation::forward), 2 * q + 2 * k + lse);
  EXPECT_EQ(compulsory_bytes(spec, Operation::backward), 4 * q + 4 * k + lse);
}

TEST(Operation, DecodingReadsTheKeysThatSequencesHave) {
  Spec spec{{.batch = 2, .heads = 8, .kv_heads = 2, .seqlen_q = 1, .seqlen_k = 100, .head_dim = 128}};
  spec.visibility.lengths = {30, 100};
  spec.paging = {.rows = 64, .pages = 1000, .table = {5, 6, 7, 8}};
  EXPECT_EQ(flops(spec, Operation::decode), 4.0 * 128 * 8 * (30 + 100));
  const double kv = 2.0 * (30 + 100) * 2 * 128 * 2, qo = 2.0 * 2 * 8 * 128 * 2, lse = 2 * 8 * 4;
  const double tables = (4 + 2) * 4;
  EXPECT_EQ(compulsory_bytes(spec, Operation::decode), kv + qo + lse + tables);
}

// As FlashMLA counts: each pair takes 576 multiply-adds for Q K^T and 512 for P V.
TEST(Operation, LatentKeysAreReadOnceAndAreValuesToo) {
  Spec spec{{.batch = 2, .heads = 8, .kv_heads = 1, .seqlen_q = 1, .seqlen_k = 100, .head_dim = 576}};
  EXPECT_EQ(flops(spec, Operation::decode), 2.0 * (576 + 512) * 100 * 8 * 2);
  const double q = 2.0 * 8 * 576 * 2, o = 2.0 * 8 * 512 * 2, k = 2.0 * 100 * 576 * 2, lse = 2 * 8 * 4;
  EXPECT_EQ(compulsory_bytes(spec, Operation::decode), q + k + o + lse);
  EXPECT_EQ(dims_of(spec, TensorId::o), (std::vector<int64_t>{2, 8, 1, 512}));
  EXPECT_EQ(dims_of(spec, TensorId::v), (std::vector<int64_t>{2, 1, 100, 512}));
  EXPECT_EQ(elements_of(spec, TensorId::v), 0) << "they are K's";
  EXPECT_EQ(spec.strides(TensorId::v), spec.strides(TensorId::k));
  EXPECT_TRUE(make_inputs(spec, InputKind::drifting, 1).v.empty());
  spec.layout = layout_bshd(spec);
  EXPECT_NO_THROW(validate(spec));
}

}  // namespace
}  // namespace flashbook
