/// \file
/// Converts small floats to float32 without branches, since tensor cores convert millions of them. Internal
/// to the simulator.
#pragma once
#include <array>
#include <bit>
#include <cstdint>

#include "common/numeric/float_formats.h"

namespace flashbook::sim {

/// The bits that an element of kType has in memory.
template <DType kType>
using ElementBits = std::conditional_t<kType == DType::e4m3, uint8_t, uint16_t>;

inline constexpr auto kE4m3Values = [] {
  std::array<float, 256> values{};
  for (int bits = 0; bits < 256; ++bits) values[std::size_t(bits)] = to_float(e4m3{uint8_t(bits)});
  return values;
}();

/// Returns the value of these bits. Like to_float, but without a branch, since simulated matrix products
/// spend most of their time here. The payload of a NaN may differ.
template <DType kType>
float value_of(ElementBits<kType> bits) {
  if constexpr (kType == DType::bf16) return std::bit_cast<float>(uint32_t(bits) << 16);
  if constexpr (kType == DType::e4m3) return kE4m3Values[bits];
  constexpr uint32_t kInfinity = 0x7c00, kFloatInfinity = 0x7f80'0000;
  // Exponent and mantissa move to their positions in a float; the factor corrects the exponent bias, for
  // subnormals as well.
  const float magnitude = std::bit_cast<float>(uint32_t(bits & 0x7fff) << 13) * 0x1p112f;
  const uint32_t special = (bits & kInfinity) == kInfinity ? kFloatInfinity : 0;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | special | uint32_t(bits & 0x8000) << 16);
}

}  // namespace flashbook::sim
