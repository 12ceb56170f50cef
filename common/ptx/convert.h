/// \file
/// Conversions between float and the element types of a kernel's tensors.
#pragma once
#include <bit>

#include "common/device/kernel.h"

#ifdef __CUDACC__
#include <concepts>

namespace flashbook {

/// An element type that kernels convert one element at a time; FP8 is converted four at a time.
template <typename T>
concept Element = std::same_as<T, float> || std::same_as<T, __half> || std::same_as<T, __nv_bfloat16>;

/// Converts an element to float; exact.
template <Element T>
__host__ __device__ __forceinline__ float to_float(T value) {
  if constexpr (std::same_as<T, __half>)
    return __half2float(value);
  else if constexpr (std::same_as<T, __nv_bfloat16>)
    return __bfloat162float(value);
  else
    return value;
}

/// Rounds a float to T, to nearest even (PTX ISA, cvt.rn).
template <Element T>
__host__ __device__ __forceinline__ T from_float(float value) {
  if constexpr (std::same_as<T, __half>)
    return __float2half_rn(value);
  else if constexpr (std::same_as<T, __nv_bfloat16>)
    return __float2bfloat16_rn(value);
  else
    return value;
}

}  // namespace flashbook
#else
// In the simulator __half and __nv_bfloat16 are f16 and bf16, so kernels use the to_float and from_float<T>
// of the host.
#include "common/numeric/float_formats.h"
#endif

namespace flashbook {

/// Rounds two floats to T like from_float and packs them into a register, `low` into its low half, as tensor
/// cores expect. One instruction. (PTX ISA, cvt.rn.f16x2.f32 and cvt.rn.bf16x2.f32)
template <typename T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  static_assert(sizeof(T) == 2, "two elements of 16 bits fill a register");
#ifdef __CUDACC__
  uint32_t packed;
  if constexpr (std::same_as<T, __half>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
#else
  return std::bit_cast<uint16_t>(from_float<T>(low)) | uint32_t(std::bit_cast<uint16_t>(from_float<T>(high)))
                                                           << 16;
#endif
}

/// Returns the two f16 elements of a register, the one in the low half first; exact. (PTX ISA, cvt.f32.f16)
__device__ __forceinline__ float2 unpack_f16(uint32_t packed) {
#ifdef __CUDACC__
  return __half22float2(__halves2half2(__ushort_as_half(packed & 0xffff), __ushort_as_half(packed >> 16)));
#else
  const auto half = [packed](int place) {
    return to_float(std::bit_cast<f16>(uint16_t(packed >> 16 * place)));
  };
  return make_float2(half(0), half(1));
#endif
}

/// Returns the two bf16 elements of a register. The bits of each are the upper half of a float; exact.
__device__ __forceinline__ float2 unpack_bf16(uint32_t packed) {
  return make_float2(__uint_as_float(packed << 16), __uint_as_float(packed & 0xffff0000u));
}

/// Multiplies the two bf16 elements of a register by those of another, rounded to nearest even. Subnormal
/// factors and products keep their values. Needs Hopper (sm_90). (PTX ISA, mul.bf16x2)
__device__ __forceinline__ uint32_t multiply_bf16(uint32_t a, uint32_t b) {
#ifdef __CUDACC__
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
#else
  const float2 left = unpack_bf16(a), right = unpack_bf16(b);
  return pack<bf16>(left.x * right.x, left.y * right.y);
#endif
}

/// Rounds four floats to e4m3 and packs them into a register, the first into its lowest byte. Rounds to
/// nearest even; values beyond 448 become 448. Two instructions. (PTX ISA, cvt.rn.satfinite.e4m3x2.f32)
__device__ __forceinline__ uint32_t pack_e4m3(float a, float b, float c, float d) {
#ifdef __CUDACC__
  uint32_t packed;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n"
      "}"
      : "=r"(packed)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return packed;
#else
  return to_e4m3(a).bits | uint32_t(to_e4m3(b).bits) << 8 | uint32_t(to_e4m3(c).bits) << 16 |
         uint32_t(to_e4m3(d).bits) << 24;
#endif
}

/// Two registers with two f16 elements each, the first in the low half.
struct F16Pairs {
  uint32_t low, high;
};

/// Returns the four e4m3 elements of a register as f16, those of its low half in `low`; exact. Two
/// instructions. (PTX ISA, cvt.rn.f16x2.e4m3x2)
__device__ __forceinline__ F16Pairs unpack_e4m3_to_f16(uint32_t packed) {
#ifdef __CUDACC__
  F16Pairs pairs;
  asm("{\n"
      ".reg .b16 first, second;\n"
      "mov.b32 {first, second}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, first;\n"
      "cvt.rn.f16x2.e4m3x2 %1, second;\n"
      "}"
      : "=r"(pairs.low), "=r"(pairs.high)
      : "r"(packed));
  return pairs;
#else
  const auto element = [packed](int i) {
    return uint32_t(std::bit_cast<uint16_t>(from_float<f16>(to_float(e4m3{uint8_t(packed >> 8 * i)}))));
  };
  return {element(0) | element(1) << 16, element(2) | element(3) << 16};
#endif
}

/// Returns the four e4m3 elements of a register, the one in the lowest byte first; exact.
__device__ __forceinline__ float4 unpack_e4m3(uint32_t packed) {
#ifdef __CUDACC__
  const F16Pairs pairs = unpack_e4m3_to_f16(packed);
  const auto half = [](uint32_t pair, int place) {
    return __half2float(__ushort_as_half(pair >> 16 * place));
  };
  return make_float4(half(pairs.low, 0), half(pairs.low, 1), half(pairs.high, 0), half(pairs.high, 1));
#else
  const auto element = [packed](int i) { return to_float(e4m3{uint8_t(packed >> 8 * i)}); };
  return make_float4(element(0), element(1), element(2), element(3));
#endif
}

}  // namespace flashbook
