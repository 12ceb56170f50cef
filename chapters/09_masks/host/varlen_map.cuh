/// \file
/// The map of a packed tensor: the host's part of step2_varlen.cuh, for steps 2 and 6.
#pragma once
#include <limits>
#include <numeric>

#include "chapters/09_masks/step2_varlen.cuh"
#include "common/attention/shape.h"
#include "common/device/device.h"
#include "common/device/tensor_map.h"
#include "common/hopper/tiles.h"

namespace flashbook::masks {

/// Bytes that divide the distances between a packed tensor's rows and between its heads.
inline uint64_t map_unit(const Shape& shape, TensorId tensor) {
  const Strides strides = shape.strides(tensor);
  return std::gcd(uint64_t(strides.row), uint64_t(strides.head)) * size_of(shape.dtype);
}

/// How a kernel names heads and rows in the map of a packed tensor. Throws UsageError if the numbers get too
/// large.
inline MapStrides varlen_strides(const Shape& shape, TensorId tensor) {
  const Strides strides = shape.strides(tensor);
  const uint64_t elements = map_unit(shape, tensor) / size_of(shape.dtype);
  const uint64_t head = strides.head / elements, row = strides.row / elements;
  const uint64_t rows = uint64_t(std::max(shape.seqlen_q, shape.seqlen_k));
  if (head * uint64_t(shape.heads) + row * rows > std::numeric_limits<int>::max())
    throw device::UsageError("packed sequences of more than 2^31 rows in all heads: split the heads");
  return {int(head), int(row)};
}

/// The map of a packed tensor, whose rows are counted up to the end of a sequence (step2_varlen.cuh).
/// As of `tile_map`, its boxes are panels where head_dim is no number of them.
inline TileMap varlen_map(const Shape& shape, TensorId tensor, const void* base, int box_rows) {
  constexpr uint64_t kNoEnd = std::numeric_limits<int>::max();
  const bool by_panels = shape.head_dim % kPanel != 0;
  const int columns = by_panels ? shape.head_dim : kPanel, panels = by_panels ? 1 : shape.head_dim / kPanel;
  const uint64_t row_bytes = uint64_t(shape.strides(tensor).row) * size_of(shape.dtype);
  const uint64_t wrap_bytes = (uint64_t(1) << 34) - row_bytes;  // times kWrap: 2^64 - rows of the map
  const int box_panels = by_panels ? 1 : tile_columns(shape.head_dim) / kPanel;
  return {device::tensor_map(
              {.dtype = shape.dtype,
               .base = base,
               .size = {uint64_t(columns), uint64_t(kRowsOfVarlenMap), uint64_t(panels), kNoEnd, kNoEnd},
               .stride = {row_bytes, kPanelRowBytes, map_unit(shape, tensor), wrap_bytes},
               .box = {kPanel, uint32_t(box_rows), uint32_t(box_panels), 1, 1},
               .swizzle = Swizzle::b128}),
          by_panels};
}

}  // namespace flashbook::masks
