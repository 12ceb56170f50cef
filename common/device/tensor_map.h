/// \file
/// Tensor maps, which describe a tensor to TMA and are created on the host.
///
///     const CUtensorMap k_map = device::tensor_map({.dtype = DType::bf16,
///                                                   .base = k,
///                                                   .size = {64, seqlen, heads},
///                                                   .stride = {128, 128 * seqlen},
///                                                   .box = {64, 128, 1},
///                                                   .swizzle = Swizzle::b128});
///
/// The kernel takes it as `const __grid_constant__ CUtensorMap k_map`.
#pragma once
#include <cstdint>
#include <vector>

#include "common/device/swizzle.h"
#include "common/device/tensor_map_type.h"
#include "common/numeric/dtype.h"

namespace flashbook::device {

/// A tensor of 1 to 5 dimensions in device memory, and the box that one copy moves. Dimensions are numbered
/// from the innermost, whose elements are contiguous.
struct TensorTiles {
  DType dtype;
  const void* base;              ///< multiple of 16
  std::vector<uint64_t> size;    ///< elements of each dimension
  std::vector<uint64_t> stride;  ///< distance in bytes between neighbours in each dimension except the
                                 ///< innermost, a multiple of 16. Dimensions may overlap and be in any order
  std::vector<uint32_t> box;     ///< elements in each dimension, up to 256; a row has 16 * n bytes; with a
                                 ///< swizzle, exactly its span
  Swizzle swizzle = Swizzle::none;
};

/// Returns the tensor map of these tiles. Throws DeviceError, which names the rule, if it would be invalid.
CUtensorMap tensor_map(const TensorTiles& tiles);

}  // namespace flashbook::device
