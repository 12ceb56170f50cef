//| # How the kernels are launched
//|
//| The host's part: tensor maps, scales, the order of tiles, grids. Versions of a step differ in their types only.
#pragma once
#include <algorithm>

#include "chapters/06_fp8/attention.cuh"
#include "common/attention/shape.h"
#include "common/attention/tensors.h"
#include "common/device/launch.h"
#include "common/device/tensor_map.h"

namespace flashbook::fp8 {

static_assert(kRowsOfWarpgroup == kQueriesOfScale, "a warpgroup's queries have one scale");

/// Tiles of `rows` queries, of all heads.
inline int64_t query_tiles(const Shape& shape, int rows) {
  return int64_t(shape.batch) * shape.heads * ((shape.seqlen_q + rows - 1) / rows);
}

inline Problem problem_of(const Shape& shape, const Tensors& t) {
  constexpr double kLog2E = 1.4426950408889634;
  const auto scales = [&](const float* scale, int seqlen, int rows) {
    const bool block = shape.scaling == Scaling::block;
    const int of_head = block ? (seqlen + rows - 1) / rows : shape.scaling == Scaling::head;
    return Scales{scale, of_head, block};
  };
  return {.seqlen_q = shape.seqlen_q,
          .seqlen_k = shape.seqlen_k,
          .heads = shape.batch * shape.heads,
          .group = shape.heads / shape.kv_heads,
          .causal = shape.causal(),
          .scale_log2 = float(shape.scale * kLog2E),
          .q_scale = scales(t.q_scale, shape.seqlen_q, kQueriesOfScale),
          .q_by_kv_head = shape.scaling == Scaling::head,
          .k_scale = scales(t.k_scale, shape.seqlen_k, kKeysOfScale),
          .v_scale = scales(t.v_scale, shape.seqlen_k, kKeysOfScale)};
}

/// The map of a tensor [heads, rows, head_dim] whose boxes are tiles of `box_rows` rows in panels of `panel`
/// columns: {column, row, panel, head}.
inline CUtensorMap tiles_of(DType type, int head_dim, const void* base, int heads, int rows, int panel,
                            int box_rows) {
  const uint64_t row_bytes = head_dim * size_of(type), panel_bytes = panel * size_of(type);
  const auto panels = uint32_t(head_dim / panel);
  return device::tensor_map({.dtype = type,
                             .base = base,
                             .size = {uint64_t(panel), uint64_t(rows), panels, uint64_t(heads)},
                             .stride = {row_bytes, panel_bytes, row_bytes * rows},
                             .box = {uint32_t(panel), uint32_t(box_rows), panels, 1},
                             .swizzle = panel_bytes == 128 ? Swizzle::b128 : Swizzle::b64});
}

inline CUtensorMap input_map(const Shape& shape, const void* base, int heads, int rows, int box_rows) {
  return tiles_of(DType::e4m3, shape.head_dim, base, heads, rows, std::min(shape.head_dim, 128), box_rows);
}

/// The order of step 5's tiles. Under a causal mask the longest go first, in sections of heads whose keys and
/// values fit the L2 cache, beside what else is in it.
inline TileOrder order_of(const Shape& shape, int rows, bool longest_first) {
  constexpr int64_t kSectionBytes = int64_t(32) << 20;
  const int64_t bytes_of_kv_head = 2 * int64_t(shape.seqlen_k) * shape.head_dim;
  const int kv_heads =
      int(std::clamp<int64_t>(kSectionBytes / bytes_of_kv_head, 1, int64_t(shape.batch) * shape.kv_heads));
  return {int(query_tiles(shape, rows)), (shape.seqlen_q + rows - 1) / rows, shape.batch * shape.heads,
          kv_heads * (shape.heads / shape.kv_heads), longest_first};
}

/// Sets the counter to 0, before the kernel that counts. One thread.
static __global__ void clear_counter(int* counter) { *counter = 0; }

/// One version of the kernel. The workspace holds the counter, if the version counts.
template <typename Config>
void run(const Shape& shape, const Tensors& t, device::Stream stream) {
  constexpr int kRows = Config::kConsumers * kRowsOfWarpgroup;
  const TileOrder order = order_of(shape, kRows, Config::kSchedule == Schedule::first_come);
  const int heads = shape.batch * shape.heads, kv_heads = shape.batch * shape.kv_heads;
  auto* counter = static_cast<int*>(t.workspace);
  if constexpr (Config::kSchedule == Schedule::first_come)
    device::launch(clear_counter, dim3(1), dim3(1), 0, stream, counter);
  const int blocks = Config::kSchedule == Schedule::one_tile
                         ? order.tiles
                         : std::min(order.tiles, device::multiprocessors());
  device::launch(attend<Config>, dim3(blocks), dim3(Config::kThreads), sizeof(Shared<Config>), stream,
                 input_map(shape, t.q, heads, shape.seqlen_q, kRowsOfWarpgroup),
                 input_map(shape, t.k, kv_heads, shape.seqlen_k, Config::kKeys),
                 input_map(shape, t.v, kv_heads, shape.seqlen_k, Config::kKeys),
                 tiles_of(DType::bf16, shape.head_dim, t.o, heads, shape.seqlen_q, 64, kRowsOfWarpgroup),
                 static_cast<__nv_bfloat16*>(t.o), t.lse, problem_of(shape, t), order, counter);
}

//| ## The versions
//|
//| Tiles are 128 keys wide up to d = 128. At d = 256 they are 96: O takes 128 registers of a thread, and S and P must fit
//| into the rest. A block scale belongs to 128 keys, so with block scales tiles there are 64 wide.

/// Step 5 for sequences of middling length.
template <int kHeadDim, bool kCausal>
using Fastest = Fast<kHeadDim, kHeadDim == 64 ? 3 : 2, kHeadDim == 256 ? 96 : 128, kCausal>;

/// Step 2: a block for each tile of queries, one loop for masked and unmasked tiles of keys.
template <int kHeadDim>
struct Overlapped : Fastest<kHeadDim, true> {
  static constexpr bool kSplitLoops = false, kLazy = false, kStoreByTma = false;
  static constexpr int kOffset = 8;
  static constexpr Schedule kSchedule = Schedule::one_tile;
};

/// Step 1.
template <int kHeadDim>
struct Straight : Overlapped<kHeadDim> {
  static constexpr bool kMatrices = false, kOverlap = false, kPingpong = false;
  static constexpr int kOffset = 0;
};

/// Steps 3 and 4.
template <int kHeadDim>
struct BlockScaled : Overlapped<kHeadDim> {
  static constexpr int kKeys = kHeadDim == 256 ? 64 : 128;
  static constexpr bool kBlockScales = true;
};

/// Step 4 with promoted sums. Not for d = 256, where O alone takes 128 registers and sums would take as many.
template <int kHeadDim>
struct Promoted : BlockScaled<kHeadDim> {
  static constexpr bool kPromote = true, kPingpong = false;
  // With queries in registers nvcc 13.0 gives P the same ones in the loop, and says nothing.
  static constexpr bool kQueriesInRegisters = false;
};

/// Step 5 for long sequences of head_dim 128. A third consumer fills waits of the other two, and shares their
/// keys and values; so the transposers have a third less to do. Its registers come from narrower tiles, and
/// from Q, which stays in shared memory. Of short sequences, 192 queries a block leave too few blocks.
template <bool kCausal>
struct LongD128 : Fast<128, 3, 96, kCausal> {
  static constexpr bool kQueriesInRegisters = false;
  static constexpr int kProducerRegisters = 32, kConsumerRegisters = 160;  // 32 + 3 * 160 = 4 * 128
};

/// Step 5 for short ones of head_dim 64, without turns: there are too few tiles to fall into step.
template <int kConsumers, bool kCausal>
struct ShortD64 : Fast<64, kConsumers, 128, kCausal> {
  static constexpr bool kPingpong = false;
};

}  // namespace flashbook::fp8
