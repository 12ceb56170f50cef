/// \file
/// The element types of the book, with their names and sizes.
#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

namespace flashbook {

/// The element type of Q, K, V and O.
enum class DType { f32, f16, bf16, e4m3 };

/// Returns the name used on the command line and in result files: "f32", "f16", "bf16", "e4m3".
constexpr std::string_view name_of(DType type) {
  constexpr std::string_view kNames[] = {"f32", "f16", "bf16", "e4m3"};
  return kNames[int(type)];
}

/// Returns the type with that name; empty if there is none.
constexpr std::optional<DType> dtype_named(std::string_view name) {
  for (DType type : {DType::f32, DType::f16, DType::bf16, DType::e4m3})
    if (name_of(type) == name) return type;
  return std::nullopt;
}

/// Returns the bytes per element.
constexpr std::size_t size_of(DType type) { return type == DType::f32 ? 4 : type == DType::e4m3 ? 1 : 2; }

/// Returns the type of O if Q, K and V have type `input`: the same type, except BF16 for e4m3, whose three
/// mantissa bits are too few for a result.
constexpr DType output_type(DType input) { return input == DType::e4m3 ? DType::bf16 : input; }

}  // namespace flashbook
