#include "common/attention/inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/specs.h"

namespace flashbook {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16, DType::e4m3};
constexpr InputKind kKinds[] = {InputKind::normal,       InputKind::outliers, InputKind::channels,
                                InputKind::large_scores, InputKind::one_hot,  InputKind::all_equal,
                                InputKind::drifting};

Spec spec_of(DType type, int head_dim, int seqlen_q, int seqlen_k) {
  return testing::make_spec(seqlen_q, seqlen_k, head_dim, false, type, 4, 2);
}

TEST(Inputs, AreFiniteAndRoundedToTheirType) {
  for (InputKind kind : kKinds)
    for (DType type : kTypes)
      for (float scale : {1e-9f, 0.125f, 1e9f}) {
        Spec spec = spec_of(type, 64, 33, 65);
        spec.scale = scale;
        const Inputs inputs = make_inputs(spec, kind, 2);
        for (const std::vector<float>* tensor : {&inputs.q, &inputs.k, &inputs.v})
          ASSERT_TRUE(std::ranges::all_of(*tensor, [](float value) { return std::isfinite(value); }));
        Inputs rounded = inputs;
        round_inputs(spec, rounded);
        ASSERT_EQ(rounded.q, inputs.q);
        ASSERT_EQ(rounded.k, inputs.k);
        ASSERT_EQ(rounded.v, inputs.v);
      }
}

TEST(Inputs, FollowFromSeedAndIndexAlone) {
  // One thread fills a small tensor; all threads share a large one.
  Spec few = spec_of(DType::f32, 64, 1, 1), many = few;
  few.heads = few.kv_heads = many.heads = many.kv_heads = 1;
  many.seqlen_q = many.seqlen_k = 3000;
  for (InputKind kind :
       {InputKind::normal, InputKind::outliers, InputKind::large_scores, InputKind::all_equal}) {
    const Inputs small = make_inputs(few, kind, 7), large = make_inputs(many, kind, 7);
    EXPECT_TRUE(std::ranges::equal(small.q, std::span(large.q).first(64)));
    EXPECT_TRUE(std::ranges::equal(small.k, std::span(large.k).first(64)));
    EXPECT_TRUE(std::ranges::equal(small.v, std::span(large.v).first(64)));
  }
  for (InputKind kind : kKinds) {
    const Inputs once = make_inputs(many, kind, 7), again = make_inputs(many, kind, 7);
    EXPECT_EQ(once.q, again.q);
    EXPECT_EQ(once.k, again.k);
    EXPECT_EQ(once.v, again.v);
  }
}

TEST(Inputs, AreTheSameOnEveryMachine) {
  const Inputs inputs = make_inputs(spec_of(DType::f32, 64, 1, 1), InputKind::normal, 1);
  EXPECT_EQ(std::vector(inputs.q.begin(), inputs.q.begin() + 3),
            (std::vector{0x1.5c0b8p-2f, -0x1.6832p+0f, -0x1.986c4p+0f}));
  EXPECT_EQ(std::vector(inputs.k.begin(), inputs.k.begin() + 3),
            (std::vector{-0x1.033fp+0f, 0x1.afbf4p-1f, 0x1.1becp-1f}));
  EXPECT_EQ(std::vector(inputs.v.begin(), inputs.v.begin() + 3),
            (std::vector{-0x1.4b83p-2f, 0x1.0c64ap+1f, 0x1.bdfc8p-2f}));
}

}  // namespace
}  // namespace flashbook
