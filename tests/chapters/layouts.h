/// \file
/// For chapters that support strides: with any strides, the bits equal those of the default layout. A
/// chapter's test file includes this after conformance.h.
#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/app/call.h"
#include "tests/chapters/conformance.h"
#include "tests/support/shapes.h"

namespace flashbook::testing {

/// Gaps of 16 elements after every row: between heads, rows and batch entries.
inline Layout layout_with_gaps(const Shape& shape) {
  const int64_t row = shape.head_dim + 16;
  const auto strides = [&](int heads, int rows) {
    return Strides{.batch = rows * heads * row + 16, .head = row, .row = heads * row};
  };
  const Strides q = strides(shape.heads, shape.seqlen_q), k = strides(shape.kv_heads, shape.seqlen_k);
  return {.q = q, .k = k, .v = k, .o = q, .d_o = q, .dq = q, .dk = k, .dv = k};
}

/// The gaps between input rows are NaN, so that reading them shows in the outputs; the gaps between output
/// rows must stay unchanged. If a step sums dQ in no fixed order, dQ is compared with the oracle.
inline void expect_layouts_agree(Shape shape, int step) {
  ASSERT_EQ(chapter_under_test.refusal(step, shape), "");
  const Operation operation = operation_under_test;
  const Inputs inputs = inputs_of(shape, InputKind::normal, 31);
  const bool same_bits = chapter_under_test.step(step).same_bits;
  const Expected expected(operation, shape, inputs, all_rows(shape));
  const auto run = [&](const Layout& layout) {
    shape.layout = layout;
    validate(shape);
    const UploadedInputs uploaded(operation, shape, inputs, device::Place::device);
    Call call(chapter_under_test, shape, uploaded, step);
    call.poison();
    call.run();
    if (!same_bits) {
      EXPECT_EQ(describe_failure(expected.judge(call.download()), "the oracle"), "") << describe(shape);
    }
    return call.download_bytes();
  };
  const std::vector<std::byte> want = run({});
  for (const auto& [name, layout] : {std::pair<std::string, Layout>{"bshd", layout_bshd(shape)},
                                     {"packed", layout_packed_qkv(shape)},
                                     {"with gaps", layout_with_gaps(shape)}}) {
    SCOPED_TRACE(describe(shape) + ", " + name + ", step " + std::to_string(step));
    const std::vector<std::byte> got = run(layout);
    std::size_t at = 0, at_want = 0;  // positions in `got` and `want`, in which outputs follow each other
    for (const TensorSpec& tensor : tensors_of(operation)) {
      if (tensor.role != Role::output) continue;
      const std::size_t element = size_of(type_of(shape, tensor.id));
      const std::size_t bytes = elements_of(shape, tensor.id) * element;
      const std::size_t spanned = elements_spanned(shape, tensor.id) * element;
      std::vector<std::byte> expected(spanned, std::byte(0xff));  // the poison value
      scatter(shape, tensor.id, std::span(want).subspan(at_want, bytes), expected, element);
      if (same_bits || tensor.id != TensorId::dq) {
        EXPECT_TRUE(std::ranges::equal(std::span(got).subspan(at, spanned), expected)) << tensor.name;
      }
      at += spanned, at_want += bytes;
    }
  }
}

class Layouts : public ChapterTest, public ::testing::WithParamInterface<int> {
 protected:
  void expect_all_agree() const {
    for (int head_dim : {64, 128, 256}) {
      Shape shape = make_shape(70, 70, head_dim, head_dim != 256, chapter_under_test.dtypes.back(), 2,
                               head_dim == 64 ? 2 : 1);
      shape.batch = 2;
      expect_layouts_agree(shape, GetParam());
    }
  }
};

TEST_P(Layouts, GiveTheSameBits) { expect_all_agree(); }

TEST_P(Layouts, GiveTheSameBitsInAnyOrderOfTheWarps) {
  const RandomWarpOrder order(GetParam());
  expect_all_agree();
}

using TracedLayouts = Layouts;

TEST_P(TracedLayouts, BreakNoRuleOfMemory) { expect_all_agree(); }

INSTANTIATE_TEST_SUITE_P(Steps, Layouts, ::testing::ValuesIn(steps_under_test()), slug_of);
INSTANTIATE_TEST_SUITE_P(Steps, TracedLayouts, ::testing::ValuesIn(steps_under_test()), slug_of);

}  // namespace flashbook::testing
