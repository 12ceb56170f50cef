//| # What a launch takes
//|
//| The host's part of every Hopper chapter: tensor maps, the order of tiles, the counter that hands them out.
//|
//| ![Tiles of queries by head, numbered in the order in which blocks take them: sections of heads, the longest first](../../docs/figures/tile_order.svg)
#pragma once
#include <algorithm>

#include "common/attention/shape.h"
#include "common/device/launch.h"
#include "common/device/tensor_map.h"
#include "common/hopper/tile_scheduler.h"
#include "common/hopper/tiles.h"

namespace flashbook::hopper {

/// Tiles of `rows` queries, of all heads.
inline int64_t query_tiles(const Shape& shape, int rows) {
  return int64_t(shape.batch) * shape.heads * ((shape.seqlen_q + rows - 1) / rows);
}

inline Problem problem_of(const Shape& shape) {
  constexpr double kLog2E = 1.4426950408889634;
  return {.seqlen_q = shape.seqlen_q,
          .seqlen_k = shape.seqlen_k,
          .heads = shape.heads,
          .group = shape.heads / shape.kv_heads,
          .causal = shape.causal(),
          .scale_log2 = float(shape.scale * kLog2E),
          .o_strides = shape.strides(TensorId::o)};
}

//| ## Tensor maps
//|
//| A tensor's map has five dimensions: {column, row, panel, head, batch}. Rows, heads and batch entries lie as far apart as
//| the caller says, so `[batch, heads, seqlen, head_dim]`, `[batch, seqlen, heads, head_dim]` and a slice of one tensor with
//| all of Q, K and V are the same to the kernels.
/// The map of a tensor of `type` whose boxes are tiles of `box_rows` rows of a head, in panels of `panel`
/// columns: {column, row, panel, head, batch}. A panel's row is the span of the swizzle, 64 or 128 bytes.
inline CUtensorMap tile_map(const Shape& shape, TensorId tensor, DType type, const void* base, int panel,
                            int box_rows) {
  const bool of_queries = tensor == TensorId::q || tensor == TensorId::o || tensor == TensorId::d_o;
  const uint64_t rows = of_queries ? shape.seqlen_q : shape.seqlen_k;
  const uint64_t heads = of_queries ? shape.heads : shape.kv_heads;
  const uint64_t bytes = size_of(type), panel_bytes = panel * bytes;
  const auto panels = uint32_t(shape.head_dim / panel);
  const Strides strides = shape.strides(tensor);
  return device::tensor_map(
      {.dtype = type,
       .base = base,
       .size = {uint64_t(panel), rows, panels, heads, uint64_t(shape.batch)},
       .stride = {strides.row * bytes, panel_bytes, strides.head * bytes, strides.batch * bytes},
       .box = {uint32_t(panel), uint32_t(box_rows), panels, 1, 1},
       .swizzle = panel_bytes == 128 ? Swizzle::b128 : Swizzle::b64});
}

/// The map of a tensor of the shape's own 16-bit type, whose boxes are tiles of `box_rows` rows.
inline CUtensorMap tile_map(const Shape& shape, TensorId tensor, const void* base, int box_rows) {
  return tile_map(shape, tensor, shape.dtype, base, kPanel, box_rows);
}

//| ## The order of tiles
//|
//| The sections of `tile_scheduler.h` are made here. 32 MB are well within the L2, which also holds queries and outputs
//| on their way; a section has at least one key head, and all query heads that share it.
/// The order of tiles of `rows` queries. `longest_first`, for a causal mask: in sections of heads whose keys
/// and values fit into `section_bytes`: of the L2 cache, beside what else is in it.
inline TileOrder tile_order(const Shape& shape, int rows, bool longest_first,
                            int64_t section_bytes = int64_t(32) << 20) {
  const int64_t bytes_of_kv_head =
      2 * int64_t(shape.seqlen_k) * shape.head_dim * int64_t(size_of(shape.dtype));
  const int kv_heads =
      int(std::clamp<int64_t>(section_bytes / bytes_of_kv_head, 1, int64_t(shape.batch) * shape.kv_heads));
  return {int(query_tiles(shape, rows)),
          (shape.seqlen_q + rows - 1) / rows,
          shape.batch,
          shape.heads,
          kv_heads * (shape.heads / shape.kv_heads),
          longest_first};
}

//| A persistent launch has as many blocks as there are multiprocessors, or tiles, if those are fewer.
/// How many blocks a launch has.
inline int blocks_for(const TileOrder& order, Schedule schedule) {
  return schedule == Schedule::single_tile ? order.tiles : std::min(order.tiles, device::multiprocessors());
}

/// Sets the counter of Schedule::dynamic_persistent to 0, before the kernel that counts. One thread. The
/// counter lies in the call's workspace: two calls that may run at the same time need a workspace each.
[[maybe_unused]] static __global__ void clear_counter(int* counter) { *counter = 0; }

}  // namespace flashbook::hopper
