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
#include "tests/support/specs.h"

namespace flashbook::testing {

/// Returns a layout with gaps of 16 elements after every row: between heads, rows and batch entries.
inline Layout layout_with_gaps(const Spec& spec) {
  const int64_t row = spec.head_dim + 16;
  const auto strides = [&](int heads, int rows) {
    return Strides{.batch = rows * heads * row + 16, .head = row, .row = heads * row};
  };
  const Strides q = strides(spec.heads, spec.seqlen_q), k = strides(spec.kv_heads, spec.seqlen_k);
  return {.q = q, .k = k, .v = k, .o = q, .d_o = q, .dq = q, .dk = k, .dv = k};
}

/// The gaps between input rows are NaN, so that reading them shows in the outputs; the gaps between output
/// rows must stay unchanged. If a step sums dQ in no fixed order, dQ is compared with the oracle.
inline void expect_layouts_agree(Spec spec, int step) {
  ASSERT_EQ(chapter_under_test.refusal(step, spec), "");
  const Operation operation = operation_under_test;
  const Inputs inputs = inputs_of(spec, InputKind::normal, 31);
  const bool same_bits = chapter_under_test.step(step).same_bits;
  const Expected expected(operation, spec, inputs, all_rows(spec));
  const auto run = [&](const Layout& layout) {
    spec.layout = layout;
    validate(spec);
    const UploadedInputs uploaded(operation, spec, inputs, device::Place::device);
    Call call(chapter_under_test, spec, uploaded, step);
    call.poison();
    call.run();
    if (!same_bits) {
      EXPECT_EQ(describe_failure(expected.judge(call.download()), "the oracle"), "") << describe(spec);
    }
    return call.download_bytes();
  };
  const std::vector<std::byte> want = run({});
  for (const auto& [name, layout] : {std::pair<std::string, Layout>{"bshd", layout_bshd(spec)},
                                     {"packed", layout_packed_qkv(spec)},
                                     {"with gaps", layout_with_gaps(spec)}}) {
    SCOPED_TRACE(describe(spec) + ", " + name + ", step " + std::to_string(step));
    const std::vector<std::byte> got = run(layout);
    std::size_t at = 0, at_want = 0;  // positions in `got` and `want`, in which outputs follow each other
    for (const TensorSpec& tensor : tensors_of(operation)) {
      if (tensor.role != Role::output) continue;
      const std::size_t element = size_of(type_of(spec, tensor.id));
      const std::size_t bytes = elements_of(spec, tensor.id) * element;
      const std::size_t spanned = elements_spanned(spec, tensor.id) * element;
      std::vector<std::byte> expected(spanned, std::byte(0xff));  // the poison value
      scatter(spec, tensor.id, std::span(want).subspan(at_want, bytes), expected, element);
      if (same_bits || tensor.id != TensorId::dq) {
        EXPECT_TRUE(std::ranges::equal(std::span(got).subspan(at, spanned), expected)) << tensor.name;
      }
      at += spanned, at_want += bytes;
    }
  }
}

class Layouts : public ChapterTest, public ::testing::WithParamInterface<int> {
 protected:
  void expect_all_agree(std::initializer_list<int> head_dims) const {
    for (int head_dim : head_dims) {
      Spec spec = make_spec(70, 70, head_dim, head_dim != 256, chapter_under_test.dtypes.back(), 2,
                            head_dim == 64 ? 2 : 1);
      spec.batch = 2;
      expect_layouts_agree(spec, GetParam());
    }
  }
};

TEST_P(Layouts, GiveTheSameBits) {
  const RandomWarpOrder order(GetParam());
  expect_all_agree({64, 128, 256});
}

using TracedLayouts = Layouts;

TEST_P(TracedLayouts, BreakNoRuleOfMemory) { expect_all_agree({64}); }

INSTANTIATE_TEST_SUITE_P(Steps, Layouts, ::testing::ValuesIn(steps_under_test()), slug_of);
INSTANTIATE_TEST_SUITE_P(Steps, TracedLayouts, ::testing::ValuesIn(steps_under_test()), slug_of);

}  // namespace flashbook::testing
