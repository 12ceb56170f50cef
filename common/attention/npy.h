/// \file
/// Arrays to and from NumPy: the .npy format, version 1.0 to 3.0
/// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/numeric/dtype.h"

namespace flashbook {

/// An array as read from a file.
struct NpyArray {
  DType dtype = DType::f32;    ///< f32 or f16: what the file holds
  std::vector<int64_t> shape;  ///< C order
  std::vector<float> values;   ///< decoded to float
};

/// Reads an array from the bytes of a file called `name`, whoever made them. Throws as read_npy does.
NpyArray parse_npy(std::span<const std::byte> bytes, std::string_view name);

/// Reads a little-endian float32 or float16 array in C order; a scalar has shape (). Throws InputError,
/// naming the file and the cure, if the file is missing, truncated, longer than its header says, too large
/// for memory, not .npy, without elements, or of another type or order.
NpyArray read_npy(const std::filesystem::path& file);

/// A mask as read from a file: one of the two arrays has elements.
struct NpyMask {
  std::vector<int64_t> shape;        ///< C order
  std::vector<unsigned char> pairs;  ///< of a bool array: which pairs are visible
  std::vector<int> intervals;        ///< of an int32 array: FlashMask's
};

/// Reads a mask from the bytes of a file called `name`. Throws as read_npy_mask does.
NpyMask parse_npy_mask(std::span<const std::byte> bytes, std::string_view name);

/// Reads a bool or little-endian int32 array in C order. Throws InputError as read_npy does.
NpyMask read_npy_mask(const std::filesystem::path& file);

/// The bytes of a file with a float32 array. `values` are as many as `shape` says.
std::string npy_bytes(std::span<const int64_t> shape, std::span<const float> values);

}  // namespace flashbook
