#include "common/attention/layout.h"

#include <gtest/gtest.h>

#include "common/attention/tensors.h"
#include "tests/support/input_error.h"

namespace flashbook {
namespace {

constexpr TensorId kStrided[] = {TensorId::q,   TensorId::k,  TensorId::v,  TensorId::o,
                                 TensorId::d_o, TensorId::dq, TensorId::dk, TensorId::dv};

Spec grouped() {
  return {{.batch = 2, .heads = 6, .kv_heads = 2, .seqlen_q = 5, .seqlen_k = 5, .dtype = DType::bf16}};
}

TEST(Layout, TheDefaultHasNoGaps) {
  const Spec spec = grouped();
  EXPECT_TRUE(spec.is_default_layout());
  EXPECT_EQ(spec.strides(TensorId::q), (Strides{6 * 5 * 64, 5 * 64, 64}));
  EXPECT_EQ(spec.strides(TensorId::k), (Strides{2 * 5 * 64, 5 * 64, 64}));
  EXPECT_EQ(spec.strides(TensorId::lse), (Strides{30, 5, 1}));
  for (TensorId id : kStrided) EXPECT_EQ(elements_spanned(spec, id), elements_of(spec, id));
  EXPECT_EQ(elements_spanned(spec, TensorId::lse), 60);
}

TEST(Layout, BshdPutsHeadsSideBySide) {
  Spec spec = grouped();
  spec.layout = layout_bshd(spec);
  EXPECT_FALSE(spec.is_default_layout());
  EXPECT_EQ(spec.strides(TensorId::o), (Strides{5 * 6 * 64, 64, 6 * 64}));
  EXPECT_EQ(spec.strides(TensorId::dv), (Strides{5 * 2 * 64, 64, 2 * 64}));
  for (TensorId id : kStrided) EXPECT_EQ(elements_spanned(spec, id), elements_of(spec, id)) << "no gaps";
  EXPECT_NO_THROW(validate(spec));
}

TEST(Layout, PackedTensorsAreSlicesOfOne) {
  Spec spec = grouped();
  spec.layout = layout_packed_qkv(spec);
  const Strides slice{5 * 10 * 64, 64, 10 * 64};  // [batch, seqlen, 6 + 2 + 2 heads, head_dim]
  for (TensorId id : {TensorId::q, TensorId::k, TensorId::v, TensorId::dq, TensorId::dk, TensorId::dv})
    EXPECT_EQ(spec.strides(id), slice);
  EXPECT_EQ(spec.strides(TensorId::o), (Strides{5 * 6 * 64, 64, 6 * 64}));
  EXPECT_EQ(elements_spanned(spec, TensorId::q), (2 * 5 * 10 - 4) * 64) << "but the last row's K and V";
  EXPECT_NO_THROW(validate(spec));
  spec.kv_heads = 6;  // [batch, seqlen, 3, heads, head_dim]
  EXPECT_EQ(layout_packed_qkv(spec).q, (Strides{5 * 18 * 64, 64, 18 * 64}));
}

TEST(Layout, OfPagesIsThatOfTheirCache) {
  Spec spec = grouped();
  spec.paging = {.rows = 16, .pages = 3, .table = {0, 1}};
  EXPECT_EQ(spec.strides(TensorId::k), (Strides{2 * 16 * 64, 16 * 64, 64}))
      << "[pages, kv_heads, rows, head_dim]";
  spec.layout = layout_bshd(spec);
  EXPECT_EQ(spec.strides(TensorId::v), (Strides{16 * 2 * 64, 64, 2 * 64}))
      << "[pages, rows, kv_heads, head_dim]";
  EXPECT_EQ(elements_spanned(spec, TensorId::v), 3 * 16 * 2 * 64);
  EXPECT_NO_THROW(validate(spec));
}

TEST(Layout, RefusesStridesThatNoKernelCanUse) {
  const auto complaint = [](auto change) {
    Spec spec = grouped();
    spec.layout = layout_bshd(spec);
    change(spec);
    return testing::input_error_of([&] { validate(spec); });
  };
  EXPECT_EQ(complaint([](Spec& s) { s.layout.k.row += 4; }),
            "the row stride of k is 132 elements: give a multiple of 8, 16 bytes");
  EXPECT_EQ(complaint([](Spec& s) { s.dtype = DType::e4m3, s.layout.q.head = 72; }),
            "the head stride of q is 72 elements: give a multiple of 16, 16 bytes");
  EXPECT_EQ(complaint([](Spec& s) { s.layout.v.batch = -640; }),
            "the batch stride of v is -640 elements: give a multiple of 8, 16 bytes");
  EXPECT_EQ(complaint([](Spec& s) { s.layout.o.head = 56; }),
            "the head stride of o is 56 elements, so that rows overlap: give at least 64");
  EXPECT_EQ(complaint([](Spec& s) { s.layout.o.row = 5 * 64; }),
            "the row stride of o is 320 elements, so that rows overlap: give at least 384");
  EXPECT_EQ(complaint([](Spec& s) { s.layout.dq.batch -= 8; }),
            "the batch stride of dq is 1912 elements, so that rows overlap: give at least 1920");
  EXPECT_EQ(complaint([](Spec& s) { s.layout.q.batch = int64_t(1) << 40; }),
            "q spans more than 2^40 elements: give shorter strides or a smaller batch");
  EXPECT_EQ(complaint([](Spec& s) { s.batch = 1, s.layout.q.batch = 64; }), "") << "one entry steps nowhere";
  EXPECT_EQ(complaint([](Spec& s) { s.layout.o.row += 8; }),
            "the batch stride of o is 1920 elements, so that rows overlap: give at least 1952");
}

}  // namespace
}  // namespace flashbook
