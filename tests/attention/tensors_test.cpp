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

Shape scaled_shape(Scaling scaling) {
  return {.batch = 2,
          .heads = 4,
          .kv_heads = 2,
          .seqlen_q = 70,
          .seqlen_k = 129,
          .head_dim = 64,
          .dtype = DType::e4m3,
          .scaling = scaling};
}

// Quantising twice changes nothing: in e4m3 with its scales, and in bf16.
TEST(Scales, QuantisedInputsEncodeToThemselves) {
  for (Scaling scaling : {Scaling::tensor, Scaling::head, Scaling::block}) {
    const Shape shape = scaled_shape(scaling);
    Inputs inputs{std::vector<float>(shape.q_elements()), std::vector<float>(shape.k_elements()),
                  std::vector<float>(shape.k_elements())};
    float value = 0.001f;
    for (auto* tensor : {&inputs.q, &inputs.k, &inputs.v})
      for (float& element : *tensor) element = value = value > 3e4f ? 0.001f : -1.37f * value;
    round_inputs(shape, inputs);
    Inputs again = inputs;
    round_inputs(shape, again);
    EXPECT_EQ(again.q, inputs.q);
    EXPECT_EQ(again.k, inputs.k);
    EXPECT_EQ(again.v, inputs.v);
    round_to(DType::bf16, again.q);
    EXPECT_EQ(again.q, inputs.q);
  }
}

// With subtracted means: the encoding has none, the decoded values include them, and encode to the same bits.
TEST(Scales, CentredInputsEncodeToThemselves) {
  for (Scaling scaling : {Scaling::tensor, Scaling::head, Scaling::block}) {
    Shape shape = scaled_shape(scaling);
    shape.mean_subtracted = true;
    const auto column = [&](int64_t i) {
      return i / shape.head_dim / shape.seqlen_k * shape.head_dim + i % shape.head_dim;
    };
    Shape unrounded = shape;
    unrounded.dtype = DType::f32, unrounded.mean_subtracted = false;
    Inputs inputs = make_inputs(unrounded, InputKind::normal, 1);
    for (int64_t i = 0; i < shape.k_elements(); ++i) {
      inputs.k[i] += float(column(i) % 5) * 100;
      inputs.v[i] -= float(column(i) % 3);
    }
    const Inputs given = inputs;
    round_inputs(shape, inputs);
    ASSERT_EQ(int64_t(inputs.k_mean.size()), shape.k_columns());
    for (int64_t i = 0; i < shape.k_columns(); ++i) {
      EXPECT_NEAR(inputs.k_mean[i], float(i % 5) * 100, 0.5f) << i;
      EXPECT_NEAR(inputs.v_mean[i], -float(i % 3), 0.5f) << i;
    }
    for (int64_t i = 0; i < shape.k_elements(); ++i)  // rounded values are of size 1, not 400
      ASSERT_NEAR(inputs.k[i], given.k[i], 0.3f) << i;
    const std::vector<std::byte> encoded = encode_inputs(shape, inputs).k.bytes;
    Inputs again = inputs;
    round_inputs(shape, again);
    EXPECT_EQ(again.k, inputs.k);
    EXPECT_EQ(again.v, inputs.v);
    EXPECT_EQ(again.k_mean, inputs.k_mean);
    Inputs without = inputs;
    without.k_mean.clear();
    EXPECT_THROW(encode_inputs(shape, without), std::logic_error);
    shape.mean_subtracted = false;
    EXPECT_THROW(encode_inputs(shape, inputs), std::logic_error);
  }
}

}  // namespace
}  // namespace flashbook
