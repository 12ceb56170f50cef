//| # Preparing a launch
//|
//| The host code shared by all Hopper chapters: tensor maps, the order of tiles, the counter that distributes
//| them.
//|
//| ![Tiles of queries by head, numbered in the order in which blocks take them: sections of heads, the
//| longest first](../../docs/figures/tile_order.svg)
#pragma once
#include <algorithm>
#include <numbers>

#include "common/attention/spec.h"
#include "common/device/launch.h"
#include "common/device/tensor_map.h"
#include "common/hopper/tile_scheduler.h"
#include "common/hopper/tiles.h"

namespace flashbook::hopper {

/// Returns the number of tiles of `rows` queries in all heads.
inline int64_t query_tiles(const Sizes& sizes, int rows) {
  return int64_t(sizes.batch) * sizes.heads * ceil_div(sizes.seqlen_q, rows);
}

inline Problem problem_of(const Spec& spec) {
  return {.seqlen_q = spec.seqlen_q,
          .seqlen_k = spec.seqlen_k,
          .heads = spec.heads,
          .group = spec.heads / spec.kv_heads,
          .causal = spec.causal(),
          .scale_log2 = float(spec.scale * std::numbers::log2e),
          .o_strides = spec.strides(TensorId::o),
          .head_dim = spec.head_dim};
}

//| ## Columns of tiles
//|
//| If values are not as wide as keys, their tiles are as wide anyway, except that keys of up to 192 columns
//| and values of up to 128 have tiles of their own widths.
/// Returns whether the tiles of keys have 192 columns, and those of values 128.
inline bool has_wide_keys(const Sizes& sizes) {
  return sizes.head_dim > 128 && sizes.head_dim <= 192 && sizes.value_dim <= 128;
}

/// Returns the number of columns in a tensor's tiles.
inline int tile_columns(const Sizes& sizes, TensorId tensor) {
  if (!has_wide_keys(sizes)) return tile_columns(std::max(sizes.head_dim, sizes.value_dim));
  return tensor == TensorId::v || tensor == TensorId::o || tensor == TensorId::d_o ? 128 : 192;
}

//| ## Tensor maps
//|
//| A tensor's map has five dimensions: {column, row, panel, head, batch}. The caller gives the
//| distances between rows, heads and batch entries, so `[batch, heads, seqlen, head_dim]`, `[batch,
//| seqlen, heads, head_dim]` and a slice of one tensor with all of Q, K and V look the same to the
//| kernels.
/// Returns the map of a tensor of `type` whose boxes are `box_panels` panels, or all, of tiles of `box_rows`
/// rows of a head: {column, row, panel, head, batch or page}. A panel has `panel` columns, and its row is the
/// span of the swizzle, 64 or 128 bytes. All columns are panels.
inline CUtensorMap tile_map(const Spec& spec, TensorId tensor, DType type, const void* base, int panel,
                            int box_rows, int box_panels = 0) {
  const uint64_t bytes = size_of(type), panel_bytes = panel * bytes;
  const auto panels = uint64_t(columns_of(spec, tensor) / panel);
  const Strides strides = spec.strides(tensor);
  const std::vector<int64_t> dims = dims_of(spec, tensor);  // [batch or pages, heads, rows, head_dim]
  return device::tensor_map(
      {.dtype = type,
       .base = base,
       .size = {uint64_t(panel), uint64_t(dims[2]), panels, uint64_t(dims[1]), uint64_t(dims[0])},
       .stride = {strides.row * bytes, panel_bytes, strides.head * bytes, strides.batch * bytes},
       .box = {uint32_t(panel), uint32_t(box_rows), box_panels > 0 ? uint32_t(box_panels) : uint32_t(panels),
               1, 1},
       .swizzle = panel_bytes == 128 ? Swizzle::b128 : Swizzle::b64});
}

//| Numbers per row, such as the log-sum-exp or D, are loaded through a map of one dimension.
/// Returns the map of one float for each row of a gradient's workspace.
inline CUtensorMap row_map(const float* base, int64_t rows, int box) {
  return device::tensor_map(
      {.dtype = DType::f32, .base = base, .size = {uint64_t(rows)}, .stride = {}, .box = {uint32_t(box)}});
}

//| For a head dimension that is not a multiple of 64, the rows of the map are one piece: the dimension for
//| panels remains, with size 1, so that kernels use the same coordinates. A multiple of 64, such as 192,
//| keeps its panels: a tile has four, the tensor three, and TMA fills the fourth with zeros.
/// Returns the map of a tensor of the problem's own 16-bit type, whose boxes are panels of `box_rows` rows.
inline TileMap panel_map(const Spec& spec, TensorId tensor, const void* base, int box_rows) {
  const uint64_t bytes = size_of(spec.dtype);
  const Strides strides = spec.strides(tensor);
  const std::vector<int64_t> dims = dims_of(spec, tensor);
  return {device::tensor_map(
              {.dtype = spec.dtype,
               .base = base,
               .size = {uint64_t(dims[3]), uint64_t(dims[2]), 1, uint64_t(dims[1]), uint64_t(dims[0])},
               .stride = {strides.row * bytes, kPanelRowBytes, strides.head * bytes, strides.batch * bytes},
               .box = {kPanel, uint32_t(box_rows), 1, 1, 1},
               .swizzle = Swizzle::b128}),
          true};
}

/// Returns the map of such a tensor whose boxes are tiles, or their panels. `TileMap` says which.
inline TileMap tile_map(const Spec& spec, TensorId tensor, const void* base, int box_rows) {
  if (columns_of(spec, tensor) % kPanel != 0) return panel_map(spec, tensor, base, box_rows);
  return {tile_map(spec, tensor, spec.dtype, base, kPanel, box_rows, tile_columns(spec, tensor) / kPanel),
          false};
}

//| ## The order of tiles
//|
//| The sections of `tile_scheduler.h` are determined here. The default of 32 MB fits easily into the L2,
//| which also holds queries and outputs in flight; a section has at least one key head, and all query heads
//| that share it.
constexpr int64_t kSectionBytes = int64_t(32) << 20;  ///< share of the L2 for a section of heads

/// Returns the number of key heads in a section if each occupies `bytes` bytes of the L2.
inline int kv_heads_of_section(const Sizes& sizes, int64_t bytes, int64_t section_bytes) {
  return int(std::clamp<int64_t>(section_bytes / bytes, 1, int64_t(sizes.batch) * sizes.kv_heads));
}

/// Returns the order in which to process tiles of `rows` queries. `longest_first` is for a causal mask, with
/// sections of heads whose keys and values fit in `section_bytes` of the L2, next to its other contents.
inline TileOrder tile_order(const Sizes& sizes, int rows, bool longest_first,
                            int64_t section_bytes = kSectionBytes) {
  const int64_t bytes_of_kv_head =
      int64_t(sizes.seqlen_k) * (sizes.head_dim + sizes.value_dim) * int64_t(size_of(sizes.dtype));
  const int kv_heads = kv_heads_of_section(sizes, bytes_of_kv_head, section_bytes);
  return {int(query_tiles(sizes, rows)),
          ceil_div(sizes.seqlen_q, rows),
          sizes.batch,
          sizes.heads,
          kv_heads * (sizes.heads / sizes.kv_heads),
          longest_first,
          sizes.seqlen_k <=
              512};  // measured: reading late costs 1 to 2 % there, and gains up to 8 % for longer rows
}

//| A gradient's block keeps its keys, and all blocks read the Q, dO and sums of dQ of the current head: 8
//| bytes per element for 16-bit types.
/// Returns the number of key heads in a section of a gradient if blocks read `queries` queries of a key head
/// at about the same time.
inline int kv_heads_of_gradient_section(const Sizes& sizes, int64_t queries,
                                        int64_t section_bytes = kSectionBytes) {
  return kv_heads_of_section(
      sizes, queries * sizes.head_dim * int64_t(2 * size_of(sizes.dtype) + sizeof(float)), section_bytes);
}

//| A persistent launch has one block per multiprocessor, or per tile if there are fewer tiles. A block
//| occupies its multiprocessor until it ends, so a kernel that should run concurrently needs a few
//| multiprocessors left free.
/// Returns the number of blocks of a launch. A persistent launch leaves `margin` multiprocessors free.
inline int blocks_for(const TileOrder& order, Schedule schedule, int margin = 0) {
  return schedule == Schedule::single_tile
             ? order.tiles
             : std::min(order.tiles, std::max(device::multiprocessors() - margin, 1));
}

/// Sets the counter of Schedule::dynamic_persistent to 0, before the kernel that uses it; runs in one thread.
/// The counter is part of the call's workspace: two calls that may run concurrently each need a workspace.
[[maybe_unused]] static __global__ void clear_counter(int* counter) { *counter = 0; }

/// Calls `body` with a constant that is true if the problem has a causal mask.
template <typename Body>
void with_causal(const Spec& spec, const Body& body) {
  spec.causal() ? body.template operator()<true>() : body.template operator()<false>();
}

}  // namespace flashbook::hopper
