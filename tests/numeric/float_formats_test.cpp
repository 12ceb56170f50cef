#include "common/numeric/float_formats.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/numeric/format_reference.h"

namespace flashbook {
namespace {

using testing::FormatReference;

// Conversions are usable in constants.
static_assert(to_f16(1.0f).bits == 0x3c00 && to_bf16(1.0f).bits == 0x3f80 && to_e4m3(1.0f).bits == 0x38);
static_assert(to_float(f16{0xc000}) == -2.0f && to_float(bf16{0xc000}) == -2.0f &&
              to_float(e4m3{0xc0}) == -2.0f);

float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

template <typename T>
struct FloatFormats : ::testing::Test {
  static constexpr const FormatReference& format() {
    if constexpr (std::is_same_v<T, f16>) return testing::kF16;
    if constexpr (std::is_same_v<T, bf16>) return testing::kBf16;
    if constexpr (std::is_same_v<T, e4m3>) return testing::kE4m3;
  }
  static T encoding(uint32_t bits) { return T{static_cast<decltype(T::bits)>(bits)}; }

  /// Checks a float and its negative.
  static void expect_encoding(uint32_t float_bits, uint32_t expected) {
    ASSERT_EQ(from_float<T>(float_of(float_bits)).bits, expected) << float_of(float_bits);
    ASSERT_EQ(from_float<T>(float_of(float_bits | testing::kFloatSign)).bits, expected | format().sign())
        << -float_of(float_bits);
  }
};

using Formats = ::testing::Types<f16, bf16, e4m3>;
TYPED_TEST_SUITE(FloatFormats, Formats);

TYPED_TEST(FloatFormats, DecodesEveryFiniteEncoding) {
  const FormatReference& format = this->format();
  for (uint32_t magnitude = 0; magnitude <= format.largest; ++magnitude) {
    const float positive = to_float(this->encoding(magnitude));
    const float negative = to_float(this->encoding(magnitude | format.sign()));
    ASSERT_EQ(double(positive), format.value(magnitude)) << magnitude;
    ASSERT_FALSE(std::signbit(positive)) << magnitude;
    ASSERT_EQ(negative, -positive) << magnitude;
    ASSERT_TRUE(std::signbit(negative)) << magnitude;
  }
}

TYPED_TEST(FloatFormats, DecodesInfinityAndNaN) {
  const FormatReference& format = this->format();
  for (uint32_t magnitude = format.largest + 1; magnitude < format.sign(); ++magnitude)
    for (uint32_t sign : {0u, format.sign()}) {
      const float value = to_float(this->encoding(magnitude | sign));
      if (magnitude == format.overflow)
        ASSERT_EQ(value, sign ? -INFINITY : INFINITY);
      else
        ASSERT_TRUE(std::isnan(value)) << magnitude;
    }
}

TYPED_TEST(FloatFormats, EncodesWhatItDecodes) {
  const FormatReference& format = this->format();
  for (uint32_t bits = 0; bits < 1u << format.bits; ++bits) {
    const float value = to_float(this->encoding(bits));
    ASSERT_EQ(from_float<TypeParam>(value).bits, std::isnan(value) ? format.nan : bits);
  }
}

TYPED_TEST(FloatFormats, RoundsToNearestEvenAroundEveryMidpoint) {
  const FormatReference& format = this->format();
  const std::vector<uint32_t> first = format.first_floats();
  ASSERT_EQ(first.size(), format.largest + 2);
  for (std::size_t i = 1; i < first.size(); ++i) {
    this->expect_encoding(first[i] - 1, format.encoding(i - 1));
    this->expect_encoding(first[i], format.encoding(i));
    this->expect_encoding(first[i] + 1, format.encoding(i));
  }
}

TYPED_TEST(FloatFormats, RoundsTheExtremes) {
  const FormatReference& format = this->format();
  this->expect_encoding(0, 0);
  this->expect_encoding(testing::kFloatInfinity, format.overflow);
  this->expect_encoding(testing::kFloatInfinity - 1, format.overflow);
  for (uint32_t sign : {0u, testing::kFloatSign})
    for (uint32_t nan : {0x7f800001u, 0x7fa00000u, 0x7fc00000u, 0x7fffffffu})
      ASSERT_EQ(from_float<TypeParam>(float_of(nan | sign)).bits, format.nan) << nan;
}

// The numbers that people know by heart.
TEST(FloatFormat, F16Landmarks) {
  EXPECT_EQ(to_f16(65504.0f).bits, 0x7bff);
  EXPECT_EQ(to_f16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_f16(0x1p-24f).bits, 1);
  EXPECT_EQ(to_f16(0x1p-25f).bits, 0) << "half the smallest value is a tie, and 0 is even";
  EXPECT_EQ(to_f16(0x1.8p-24f).bits, 2) << "1.5 steps are a tie, and 2 is even";
}

TEST(FloatFormat, Bf16Landmarks) {
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(to_bf16(0x1.01p0f).bits, 0x3f80) << "a tie goes to the even 1.0";
  EXPECT_EQ(to_bf16(0x1.03p0f).bits, 0x3f82) << "a tie goes to the even 1 + 4/256";
  EXPECT_EQ(to_bf16(0x1p-133f).bits, 1);
}

TEST(FloatFormat, E4m3Landmarks) {
  EXPECT_EQ(to_float(to_e4m3(448.0f)), 448.0f);
  EXPECT_EQ(to_float(to_e4m3(464.0f)), 448.0f);
  EXPECT_EQ(to_float(to_e4m3(1e30f)), 448.0f);
  EXPECT_EQ(to_float(to_e4m3(-INFINITY)), -448.0f);
  EXPECT_EQ(to_float(to_e4m3(0x1p-9f)), 0x1p-9f);
  EXPECT_EQ(to_float(to_e4m3(0x1p-10f)), 0.0f);
}

TEST(FloatFormat, FloatIsItself) {
  for (float value : {0.0f, -1.5f, 1e-45f, INFINITY}) {
    EXPECT_EQ(from_float<float>(value), value);
    EXPECT_EQ(to_float(value), value);
  }
}

TEST(FloatFormat, WithHostTypeFindsTheType) {
  const auto size = [](DType type) { return with_host_type(type, []<typename T>(T) { return sizeof(T); }); };
  const auto tenth = [](DType type) {
    return with_host_type(type, []<typename T>(T) { return to_float(from_float<T>(0.1f)); });
  };
  for (DType type : {DType::f32, DType::f16, DType::bf16, DType::e4m3}) EXPECT_EQ(size(type), size_of(type));
  EXPECT_EQ(tenth(DType::f32), 0.1f);
  EXPECT_EQ(tenth(DType::f16), 0.0999755859375f);
  EXPECT_EQ(tenth(DType::bf16), 0.10009765625f);
  EXPECT_EQ(tenth(DType::e4m3), 0.1015625f);
}

TEST(DType, NamesGoBothWays) {
  for (DType type : {DType::f32, DType::f16, DType::bf16, DType::e4m3})
    EXPECT_EQ(dtype_named(name_of(type)), type);
  EXPECT_EQ(dtype_named("fp16"), std::nullopt);
  EXPECT_EQ(dtype_named(""), std::nullopt);
}

TEST(DType, OutputIsTheInputsTypeButForFp8) {
  for (DType type : {DType::f32, DType::f16, DType::bf16}) EXPECT_EQ(output_type(type), type);
  EXPECT_EQ(output_type(DType::e4m3), DType::bf16);
}

}  // namespace
}  // namespace flashbook
