#include "common/attention/tensors.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/attention/inputs.h"

namespace flashbook {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16, DType::e4m3};
const std::vector<float> kValues = {0.0f, -0.0f, 1.0f, -2.5f, 0.1f, 3.14159f, 1e-3f, 447.0f};

TEST(Tensors, DecodeUndoesEncodeUpToRounding) {
  for (DType type : kTypes) {
    std::vector<float> rounded = kValues;
    round_to(type, rounded);
    EXPECT_EQ(decode(type, encode(type, kValues)), rounded) << name_of(type);
    EXPECT_EQ(decode(type, encode(type, rounded)), rounded) << name_of(type);
  }
}

TEST(Tensors, PoisonIsNaNInEveryType) {
  for (DType type : kTypes) {
    const std::vector<std::byte> poison(3 * size_of(type), std::byte(0xff));
    const std::vector<float> values = decode(type, poison);
    ASSERT_EQ(values.size(), 3u);
    for (float value : values) EXPECT_TRUE(std::isnan(value)) << name_of(type);
  }
}

Spec scaled_spec(Scaling scaling) {
  Spec spec{{.batch = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 70, .seqlen_k = 129, .dtype = DType::e4m3}};
  spec.e4m3.scaling = scaling;
  return spec;
}

// Quantising twice changes nothing: in e4m3 with its scales, and in bf16.
TEST(Scales, QuantisedInputsEncodeToThemselves) {
  for (Scaling scaling : {Scaling::tensor, Scaling::head, Scaling::block}) {
    const Spec spec = scaled_spec(scaling);
    Inputs inputs{std::vector<float>(spec.q_elements()), std::vector<float>(spec.k_elements()),
                  std::vector<float>(spec.k_elements())};
    float value = 0.001f;
    for (auto* tensor : {&inputs.q, &inputs.k, &inputs.v})
      for (float& element : *tensor) element = value = value > 3e4f ? 0.001f : -1.37f * value;
    round_inputs(spec, inputs);
    Inputs again = inputs;
    round_inputs(spec, again);
    EXPECT_EQ(again.q, inputs.q);
    EXPECT_EQ(again.k, inputs.k);
    EXPECT_EQ(again.v, inputs.v);
    round_to(DType::bf16, again.q);
    EXPECT_EQ(again.q, inputs.q);
  }
}

}  // namespace
}  // namespace flashbook
