/// \file
/// The map of a packed tensor: the host's part of step2_varlen.cuh, for steps 2 and 6.
#pragma once
#include <limits>
#include <numeric>

#include "chapters/09_masks/step2_varlen.cuh"
#include "common/attention/spec.h"
#include "common/device/device.h"
#include "common/device/tensor_map.h"
#include "common/hopper/launch.h"

namespace flashbook::masks {

/// Returns the bytes that divide the distances between a packed tensor's rows and between its heads.
inline uint64_t map_unit(const Spec& spec, TensorId tensor) {
  const Strides strides = spec.strides(tensor);
  return std::gcd(uint64_t(strides.row), uint64_t(strides.head)) * size_of(spec.dtype);
}

/// Returns how a kernel addresses heads and rows in a packed tensor's map. Throws UsageError if an index
/// would overflow.
inline MapStrides varlen_strides(const Spec& spec, TensorId tensor) {
  const Strides strides = spec.strides(tensor);
  const uint64_t elements = map_unit(spec, tensor) / size_of(spec.dtype);
  const uint64_t head = strides.head / elements, row = strides.row / elements;
  const uint64_t rows = uint64_t(std::max(spec.seqlen_q, spec.seqlen_k));
  if (head * uint64_t(spec.heads) + row * rows > std::numeric_limits<int>::max())
    throw device::UsageError("packed sequences of more than 2^31 rows in all heads: split the heads");
  return {int(head), int(row)};
}

/// Makes a map {column, row, any, ...} count its rows up to an end, which the last two dimensions encode in
/// units of `unit_bytes` (step2_varlen.cuh).
inline void count_to_an_end(device::TensorTiles& tiles, uint64_t unit_bytes) {
  constexpr uint64_t kNoEnd = std::numeric_limits<int>::max();
  tiles.size[1] = kVarlenMapRows;
  tiles.size[3] = tiles.size[4] = kNoEnd;
  tiles.stride[2] = unit_bytes;
  tiles.stride[3] = (uint64_t(1) << 34) - tiles.stride[0];  // times kWrap: 2^64 - rows of the map
}

/// Returns the map of a packed tensor, or of pages, whose rows are counted up to the end of a sequence.
/// As in `tile_map`, its boxes are panels if head_dim is not a whole number of them, if `box_panels` is 1, or
/// if a row must be `in_one_piece`.
inline TileMap map_to_an_end(const Spec& spec, TensorId tensor, const void* base, uint64_t unit_bytes,
                             int box_rows, int box_panels, bool in_one_piece = false) {
  const int row = columns_of(spec, tensor);
  const bool by_panels = row % kPanel != 0 || in_one_piece;
  const int columns = by_panels ? row : kPanel, panels = by_panels ? 1 : row / kPanel;
  device::TensorTiles tiles = {
      .dtype = spec.dtype,
      .base = base,
      .size = {uint64_t(columns), 0, uint64_t(panels), 0, 0},
      .stride = {uint64_t(spec.strides(tensor).row) * size_of(spec.dtype), kPanelRowBytes, 0, 0},
      .box = {kPanel, uint32_t(box_rows), by_panels ? 1 : uint32_t(box_panels), 1, 1},
      .swizzle = Swizzle::b128};
  count_to_an_end(tiles, unit_bytes);
  return {device::tensor_map(tiles), by_panels};
}

inline TileMap varlen_map(const Spec& spec, TensorId tensor, const void* base, int box_rows) {
  return map_to_an_end(spec, tensor, base, map_unit(spec, tensor), box_rows,
                       tile_columns(spec, tensor) / kPanel);
}

/// Does the same with boxes that are panels.
inline TileMap varlen_panel_map(const Spec& spec, TensorId tensor, const void* base, int box_rows) {
  return map_to_an_end(spec, tensor, base, map_unit(spec, tensor), box_rows, 1, true);
}

}  // namespace flashbook::masks
