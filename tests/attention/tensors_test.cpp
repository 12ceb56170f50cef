#include "common/attention/tensors.h"

#include <gtest/gtest.h>

#include <cmath>

namespace flashbook {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16, DType::e4m3};
const std::vector<float> kValues = {0.0f, -0.0f, 1.0f, -2.5f, 0.1f, 3.14159f, 1e-3f, 447.0f};

TEST(Tensors, EncodeTakesTheElementsSize) {
  for (DType type : kTypes) EXPECT_EQ(encode(type, kValues).size(), kValues.size() * size_of(type));
}

TEST(Tensors, DecodeUndoesEncodeUpToRounding) {
  for (DType type : kTypes) {
    std::vector<float> rounded = kValues;
    round_to(type, rounded);
    EXPECT_EQ(decode(type, encode(type, kValues)), rounded) << name_of(type);
    EXPECT_EQ(decode(type, encode(type, rounded)), rounded) << name_of(type);
  }
}

TEST(Tensors, RoundsToTheType) {
  const auto rounded = [](DType type) {
    std::vector<float> values = {0.1f};
    round_to(type, values);
    return values[0];
  };
  EXPECT_EQ(rounded(DType::f32), 0.1f);
  EXPECT_EQ(rounded(DType::f16), 0.0999755859375f);
  EXPECT_EQ(rounded(DType::bf16), 0.10009765625f);
  EXPECT_EQ(rounded(DType::e4m3), 0.1015625f);
}

TEST(Tensors, EncodesLittleEndian) {
  EXPECT_EQ(encode(DType::f16, std::vector{1.0f}), (std::vector{std::byte(0x00), std::byte(0x3c)}));
  EXPECT_EQ(encode(DType::e4m3, std::vector{1.0f}), (std::vector{std::byte(0x38)}));
}

TEST(Tensors, PoisonIsNaNInEveryType) {
  for (DType type : kTypes) {
    const std::vector<std::byte> poison(3 * size_of(type), std::byte(0xff));
    const std::vector<float> values = decode(type, poison);
    ASSERT_EQ(values.size(), 3u);
    for (float value : values) EXPECT_TRUE(std::isnan(value)) << name_of(type);
  }
}

}  // namespace
}  // namespace flashbook
