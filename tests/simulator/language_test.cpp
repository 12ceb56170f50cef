#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "common/ptx/convert.h"
#include "common/ptx/math.h"
#include "tests/simulator/simulated.h"

namespace flashbook {
namespace {

TEST(VectorTypes, HaveCudasSizesAndAlignments) {
  EXPECT_EQ(sizeof(float2), 8u);
  EXPECT_EQ(alignof(float2), 8u);
  EXPECT_EQ(sizeof(float4), 16u);
  EXPECT_EQ(alignof(float4), 16u);
  EXPECT_EQ(sizeof(uint4), 16u);
  EXPECT_EQ(alignof(int4), 16u);
  EXPECT_EQ(sizeof(uint3), 12u);
  EXPECT_TRUE(std::is_trivially_default_constructible_v<float4>);
}

TEST(VectorTypes, AreViewsOfArrays) {
  alignas(16) float source[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  alignas(16) float target[8] = {};
  float4 value = *reinterpret_cast<const float4*>(source + 4);
  EXPECT_EQ(value.x + value.y * 10 + value.z * 100 + value.w * 1000, 7654);
  value.z = 9;
  *reinterpret_cast<float4*>(target) = value;
  EXPECT_EQ(target[0], 4);
  EXPECT_EQ(target[2], 9);
  const float2 two = make_float2(1, 2);
  const uint4 four{1, 2, 3, 4};
  EXPECT_EQ(two.y, 2);
  EXPECT_EQ(four.w, 4u);
}

TEST(VectorTypes, LeftOutDimensionsAreOne) {
  constexpr dim3 size = 7;
  EXPECT_EQ(size.x, 7u);
  EXPECT_EQ(size.y, 1u);
  EXPECT_EQ(size.z, 1u);
}

TEST(Math, FunctionsMeanWhatCudaSays) {
  EXPECT_FLOAT_EQ(__expf(1.0f), std::exp(1.0f));
  EXPECT_FLOAT_EQ(__logf(10.0f), std::log(10.0f));
  EXPECT_FLOAT_EQ(__log2f(8.0f), 3.0f);
  EXPECT_EQ(exp2_approx(-INFINITY), 0.0f);
  EXPECT_EQ(exp2_approx(3.0f), 8.0f);
  EXPECT_EQ(rsqrtf(16.0f), 0.25f);
  EXPECT_EQ(__fdividef(1.0f, 4.0f), 0.25f);
  EXPECT_EQ(__float_as_uint(1.0f), 0x3f800000u);
  EXPECT_EQ(__uint_as_float(0xff800000u), -INFINITY);
  EXPECT_EQ(__int_as_float(__float_as_int(-2.5f)), -2.5f);
  EXPECT_EQ(fmaxf(NAN, 1.0f), 1.0f);
  EXPECT_EQ(max(2, 3) + min(2, 3), 5);
  EXPECT_EQ(__popc(0xff00ffu), 16);
  EXPECT_EQ(__clz(1), 31);
  EXPECT_EQ(__clz(0), 32);
  EXPECT_EQ(__ffs(0), 0);
  EXPECT_EQ(__ffs(8), 4);
}

TEST(Convert, RoundsToNearestEven) {
  EXPECT_EQ(to_float(from_float<__half>(1.0f + 0x1p-11f)), 1.0f);
  EXPECT_EQ(to_float(from_float<__half>(1.0f + 3 * 0x1p-11f)), 1.0f + 0x1p-9f);
  EXPECT_EQ(to_float(from_float<__nv_bfloat16>(1.0f + 0x1p-8f)), 1.0f);
  EXPECT_EQ(to_float(from_float<float>(0.1f)), 0.1f);
  static_assert(std::is_same_v<__half, f16> && std::is_same_v<__nv_bfloat16, bf16>,
                "a kernel's 16-bit floats are the host's");
}

}  // namespace
}  // namespace flashbook
