/// \file
/// The tensor map of Q, K, V or O: one for all heads, whose boxes are rows of one head.
#pragma once
#include "common/device/tensor_map.h"

namespace flashbook {

/// Returns the map of a tensor [heads, rows, head_dim] of bf16, in boxes of `box_rows` rows and 64 columns.
/// 64 columns are 128 bytes, the span of the widest swizzle.
inline CUtensorMap head_map(const void* tensor, int heads, int rows, int head_dim, int box_rows,
                            Swizzle swizzle) {
  const uint64_t row_bytes = uint64_t(head_dim) * size_of(DType::bf16);
  return device::tensor_map({.dtype = DType::bf16,
                             .base = tensor,
                             .size = {uint64_t(head_dim), uint64_t(rows), uint64_t(heads)},
                             .stride = {row_bytes, row_bytes * uint64_t(rows)},
                             .box = {64, uint32_t(box_rows), 1},
                             .swizzle = swizzle});
}

}  // namespace flashbook
