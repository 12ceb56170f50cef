/// \file
/// The map of a packed tensor: the host's part of packed.cuh, for steps 2 and 6.
#pragma once
#include "common/attention/shape.h"
#include "common/device/tensor_map.h"
#include "common/hopper/tiles.h"

namespace flashbook::masks {

/// The map of a packed tensor, whose rows are counted up to the end of a sequence (packed.cuh).
inline CUtensorMap packed_map(const Shape& shape, TensorId tensor, const void* base, int box_rows) {
  const bool of_queries = tensor == TensorId::q || tensor == TensorId::o || tensor == TensorId::d_o;
  const auto rows = uint64_t(of_queries ? shape.seqlen_q : shape.seqlen_k);
  const auto heads = uint64_t(of_queries ? shape.heads : shape.kv_heads);
  const auto panels = uint32_t(shape.head_dim / hopper::kPanel);
  const Strides strides = shape.strides(tensor);
  const uint64_t bytes = size_of(shape.dtype), row_bytes = strides.row * bytes;
  return device::tensor_map(
      {.dtype = shape.dtype,
       .base = reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(base) - rows * row_bytes),
       .size = {hopper::kPanel, rows, panels, heads, rows + 1},
       .stride = {row_bytes, hopper::kPanelRowBytes, strides.head * bytes, row_bytes},
       .box = {hopper::kPanel, uint32_t(box_rows), panels, 1, 1},
       .swizzle = Swizzle::b128});
}

}  // namespace flashbook::masks
