/// \file
/// Reads and writes NumPy arrays: the .npy format, versions 1.0 to 3.0
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
  DType dtype = DType::f32;    ///< f32 or f16, as in the file
  std::vector<int64_t> shape;  ///< sizes, in C order
  std::vector<float> values;   ///< converted to float
};

/// Reads an array from the bytes of a file called `name`, which may be untrusted. Throws like
/// read_npy.
NpyArray parse_npy(std::span<const std::byte> bytes, std::string_view name);

/// Reads a little-endian float32 or float16 array in C order; a scalar has shape (). Throws InputError,
/// naming the file and the fix, if the file is missing, truncated, longer than its header says, too large for
/// memory, not .npy, without elements, or of another type or order.
NpyArray read_npy(const std::filesystem::path& file);

/// A mask as read from a file; only one of the two arrays has elements.
struct NpyMask {
  std::vector<int64_t> shape;        ///< sizes, in C order
  std::vector<unsigned char> pairs;  ///< from a bool array: which pairs are visible
  std::vector<int> intervals;        ///< from an int32 array: FlashMask's intervals
};

/// Reads a mask from the bytes of a file called `name`. Throws like read_npy_mask.
NpyMask parse_npy_mask(std::span<const std::byte> bytes, std::string_view name);

/// Reads a bool or little-endian int32 array in C order. Throws InputError like read_npy.
NpyMask read_npy_mask(const std::filesystem::path& file);

/// Returns the bytes of a file with a float32 array. The number of `values` must match `spec`.
std::string npy_bytes(std::span<const int64_t> shape, std::span<const float> values);

/// Returns "[2, 16, 4096]", for example.
std::string dims_text(const std::vector<int64_t>& dims);

}  // namespace flashbook
