/// \file
/// The element types of the book, by name and by size.
#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

namespace flashbook {

/// Element type of Q, K, V and O.
enum class DType { f32, f16, bf16, e4m3 };

/// The name used on the command line and in result files: "f32", "f16", "bf16", "e4m3".
constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::e4m3:
      return "e4m3";
  }
  return "?";
}

/// The type of that name, or nothing.
constexpr std::optional<DType> dtype_named(std::string_view name) {
  for (DType type : {DType::f32, DType::f16, DType::bf16, DType::e4m3})
    if (name_of(type) == name) return type;
  return std::nullopt;
}

/// Bytes per element.
constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::f32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::e4m3:
      return 1;
  }
  return 0;
}

/// The type of O where Q, K and V have type `input`: the same, but BF16 for e4m3, whose three mantissa bits
/// are too few for a result.
constexpr DType output_type(DType input) { return input == DType::e4m3 ? DType::bf16 : input; }

}  // namespace flashbook
