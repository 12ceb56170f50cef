/// \file
/// Shared by the tests of exercises that use TMA.
#pragma once
#include "common/device/tensor_map.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {

/// Returns random numbers that are exact in f16.
inline std::vector<float> random_halves(std::size_t count, unsigned seed) {
  return decode(DType::f16, encode(DType::f16, random_numbers(count, seed)));
}

/// Returns a tensor map of f16 [heads, rows, columns]: boxes of `box_rows` rows of a head, in panels as wide
/// as the swizzle. Its dimensions are column, row, panel, head, and a batch of one.
inline CUtensorMap tile_map(const DeviceArray& tensor, int heads, int rows, int columns, int box_rows,
                            Swizzle swizzle) {
  const uint64_t panel_bytes = swizzle_bytes(swizzle), row_bytes = uint64_t(columns) * sizeof(__half);
  const uint32_t panel = uint32_t(panel_bytes / sizeof(__half)), panels = uint32_t(row_bytes / panel_bytes);
  return device::tensor_map({.dtype = DType::f16,
                             .base = tensor.as<__half>(),
                             .size = {panel, uint64_t(rows), panels, uint64_t(heads), 1},
                             .stride = {row_bytes, panel_bytes, row_bytes * uint64_t(rows),
                                        row_bytes * uint64_t(rows) * uint64_t(heads)},
                             .box = {panel, uint32_t(box_rows), panels, 1, 1},
                             .swizzle = swizzle});
}

}  // namespace flashbook::testing
