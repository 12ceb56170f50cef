#include "common/numeric/float_formats.h"

#include <gtest/gtest.h>

#include "tests/numeric/format_reference.h"

namespace flashbook {
namespace {

using testing::FormatReference;

// Conversions are usable in constant expressions.
static_assert(to_f16(1.0f).bits == 0x3c00 && to_bf16(1.0f).bits == 0x3f80 && to_e4m3(1.0f).bits == 0x38);
static_assert(to_float(f16::from_bits(0xc000)) == -2.0f && to_float(bf16::from_bits(0xc000)) == -2.0f &&
              to_float(e4m3{0xc0}) == -2.0f);

float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

template <typename T>
struct FloatFormats : ::testing::Test {
  static constexpr const FormatReference& format() {
    if constexpr (std::is_same_v<T, f16>) return testing::kF16;
    if constexpr (std::is_same_v<T, bf16>) return testing::kBf16;
    if constexpr (std::is_same_v<T, e4m3>) return testing::kE4m3;
  }
  static T encoding(uint32_t bits) { return std::bit_cast<T>(static_cast<decltype(T::bits)>(bits)); }

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

}  // namespace
}  // namespace flashbook
