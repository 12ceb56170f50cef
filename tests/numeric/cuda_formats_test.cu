// Compares the host's formats with CUDA's headers. Host code only: it needs nvcc, but no GPU.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>

#include "common/numeric/float_formats.h"
#include "tests/numeric/format_reference.h"

namespace flashbook {
namespace {

/// A format in this project and in CUDA: encodings as integers, decoded values as the bits of a float.
struct F16 {
  static constexpr testing::FormatReference format = testing::kF16;
  static uint32_t ours(float value) { return to_f16(value).bits; }
  static uint32_t cudas(float value) { return __half_as_ushort(__float2half_rn(value)); }
  static float ours(uint32_t bits) { return to_float(f16::from_bits(uint16_t(bits))); }
  static float cudas(uint32_t bits) { return __half2float(__ushort_as_half(uint16_t(bits))); }
};

struct Bf16 {
  static constexpr testing::FormatReference format = testing::kBf16;
  static uint32_t ours(float value) { return to_bf16(value).bits; }
  static uint32_t cudas(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
  static float ours(uint32_t bits) { return to_float(bf16::from_bits(uint16_t(bits))); }
  static float cudas(uint32_t bits) { return __bfloat162float(__ushort_as_bfloat16(uint16_t(bits))); }
};

struct E4m3 {
  static constexpr testing::FormatReference format = testing::kE4m3;
  static uint32_t ours(float value) { return to_e4m3(value).bits; }
  static uint32_t cudas(float value) { return __nv_fp8_e4m3(value).__x; }
  static float ours(uint32_t bits) { return to_float(e4m3{uint8_t(bits)}); }
  static float cudas(uint32_t bits) {
    __nv_fp8_e4m3 value;
    value.__x = __nv_fp8_storage_t(bits);
    return float(value);
  }
};

template <typename T>
struct CudaFormats : ::testing::Test {};
using Formats = ::testing::Types<F16, Bf16, E4m3>;
TYPED_TEST_SUITE(CudaFormats, Formats);

TYPED_TEST(CudaFormats, DecodesEveryEncodingAlike) {
  for (uint32_t bits = 0; bits < 1u << TypeParam::format.bits; ++bits)
    ASSERT_EQ(std::bit_cast<uint32_t>(TypeParam::ours(bits)), std::bit_cast<uint32_t>(TypeParam::cudas(bits)))
        << bits;
}

TYPED_TEST(CudaFormats, EncodesEveryMidpointAndItsNeighboursAlike) {
  for (uint32_t first : TypeParam::format.first_floats())
    for (int64_t offset = -2; offset <= 2; ++offset)
      for (uint32_t sign : {0u, testing::kFloatSign}) {
        const float value = std::bit_cast<float>(uint32_t(first + offset) ^ sign);
        ASSERT_EQ(TypeParam::ours(value), TypeParam::cudas(value)) << value;
      }
}

TYPED_TEST(CudaFormats, EncodesADenseSampleOfAllFloatsAlike) {
  for (uint64_t bits = 0; bits < uint64_t(1) << 32; bits += 257) {
    const float value = std::bit_cast<float>(uint32_t(bits));
    ASSERT_EQ(TypeParam::ours(value), TypeParam::cudas(value)) << bits;
  }
}

/// Returns the bits of a result, with one pattern for every NaN.
template <typename T>
uint32_t bits_of(T value) {
  return value == value ? std::bit_cast<uint16_t>(value) : 0x7fffu;
}

template <typename Ours, typename Cudas>
void expect_same_arithmetic() {
  uint32_t state = 1;
  const auto next = [&] { return uint16_t((state = state * 1664525 + 1013904223) >> 16); };
  for (int i = 0; i < 1'000'000; ++i) {
    const uint16_t a = next(), b = i % 2 ? next() : uint16_t(a ^ next() >> 10);  // half of them are close
    const auto x = Ours::from_bits(a), y = Ours::from_bits(b);
    const auto p = std::bit_cast<Cudas>(a), q = std::bit_cast<Cudas>(b);
    ASSERT_EQ(bits_of(x + y), bits_of(p + q)) << a << " " << b;
    ASSERT_EQ(bits_of(x - y), bits_of(p - q)) << a << " " << b;
    ASSERT_EQ(bits_of(x * y), bits_of(p * q)) << a << " " << b;
    ASSERT_EQ(bits_of(x / y), bits_of(p / q)) << a << " " << b;
    ASSERT_EQ(bits_of(-x), bits_of(-p)) << a;
    ASSERT_TRUE((x < y) == (p < q) && (x <= y) == (p <= q) && (x == y) == (p == q)) << a << " " << b;
    const int whole = int(state) >> (i % 24);
    ASSERT_EQ(bits_of(Ours(whole)), bits_of(Cudas(whole))) << whole;
    const double real = whole * 0x1p-20 + a * 0x1p-70;
    ASSERT_EQ(bits_of(Ours(real)), bits_of(Cudas(real))) << real;
  }
}

TEST(CudaFormats, ComputeAlike) {
  expect_same_arithmetic<f16, __half>();
  expect_same_arithmetic<bf16, __nv_bfloat16>();
}

}  // namespace
}  // namespace flashbook
