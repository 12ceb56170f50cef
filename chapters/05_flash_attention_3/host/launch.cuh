//| # How the kernels are launched
//|
//| The host's part: tensor maps, the order of tiles, grids. Versions of a step differ in their types only.
//|
//| ![Tiles of queries by head, numbered in the order in which blocks take them: sections of heads, the longest first](../../../docs/figures/tile_order.svg)
#pragma once
#include <algorithm>

#include "chapters/05_flash_attention_3/step1_single_warpgroup.cuh"
#include "chapters/05_flash_attention_3/step2_specialised.cuh"
#include "chapters/05_flash_attention_3/step5_persistent.cuh"
#include "common/attention/shape.h"
#include "common/attention/tensors.h"
#include "common/device/launch.h"
#include "common/device/tensor_map.h"

namespace flashbook::flash3 {

/// Tiles of `rows` queries, of all heads.
inline int64_t query_tiles(const Shape& shape, int rows) {
  return int64_t(shape.batch) * shape.heads * ((shape.seqlen_q + rows - 1) / rows);
}

inline Problem problem_of(const Shape& shape) {
  constexpr double kLog2E = 1.4426950408889634;
  return {shape.seqlen_q,
          shape.seqlen_k,
          shape.heads,
          shape.heads / shape.kv_heads,
          shape.causal(),
          float(shape.scale * kLog2E),
          shape.strides(TensorId::o)};
}

//| A tensor's map has five dimensions: {column, row, panel, head, batch}. Rows, heads and batch entries lie as far apart as
//| the caller says, so `[batch, heads, seqlen, head_dim]`, `[batch, seqlen, heads, head_dim]` and a slice of one tensor with
//| all of Q, K and V are the same to the kernels.

/// The map of a tensor whose boxes are tiles of `box_rows` rows.
inline CUtensorMap tile_map(const Shape& shape, TensorId tensor, const void* base, int rows, int heads,
                            int box_rows) {
  const uint64_t bytes = size_of(shape.dtype);
  const uint32_t panels = shape.head_dim / kPanel;
  const Strides strides = shape.strides(tensor);
  return device::tensor_map(
      {.dtype = shape.dtype,
       .base = base,
       .size = {kPanel, uint64_t(rows), panels, uint64_t(heads), uint64_t(shape.batch)},
       .stride = {strides.row * bytes, kPanelRowBytes, strides.head * bytes, strides.batch * bytes},
       .box = {kPanel, uint32_t(box_rows), panels, 1, 1},
       .swizzle = Swizzle::b128});
}

/// Of Q or O.
inline CUtensorMap query_map(const Shape& shape, TensorId tensor, const void* base) {
  return tile_map(shape, tensor, base, shape.seqlen_q, shape.heads, kRowsOfWarpgroup);
}

/// Of K or V.
inline CUtensorMap key_map(const Shape& shape, TensorId tensor, const void* base, int box_rows) {
  return tile_map(shape, tensor, base, shape.seqlen_k, shape.kv_heads, box_rows);
}

//| ## The order of tiles
//|
//| The sections of `tile_scheduler.cuh` are made here. 32 MB are well within the L2, which also holds queries and outputs
//| on their way; a section has at least one key head, and all query heads that share it.
/// The order of step 5's tiles. Under a causal mask the longest go first, in sections of heads whose keys and
/// values fit the L2 cache, beside what else is in it.
inline TileOrder tile_order(const Shape& shape, int rows, bool longest_first) {
  constexpr int64_t kSectionBytes = int64_t(32) << 20;
  const int64_t bytes_of_kv_head =
      2 * int64_t(shape.seqlen_k) * shape.head_dim * int64_t(size_of(shape.dtype));
  const int kv_heads =
      int(std::clamp<int64_t>(kSectionBytes / bytes_of_kv_head, 1, int64_t(shape.batch) * shape.kv_heads));
  return {int(query_tiles(shape, rows)),
          (shape.seqlen_q + rows - 1) / rows,
          shape.batch,
          shape.heads,
          kv_heads * (shape.heads / shape.kv_heads),
          longest_first};
}

//| ## The launches
//|
//| Step 1 has a block for each 64 queries. Tiles have 128 keys, and 64 at d = 256, so that two blocks fit a
//| multiprocessor.
/// Step 1.
template <typename T, int kHeadDim>
void run_single(const Shape& shape, const Tensors& t, device::Stream stream) {
  constexpr int kKeys = kHeadDim == 256 ? 64 : 128;
  device::launch(single_warpgroup<T, kHeadDim, kKeys>, dim3(query_tiles(shape, kRowsOfWarpgroup)),
                 dim3(kWarpgroup), sizeof(SingleShared<T, kHeadDim, kKeys>), stream,
                 query_map(shape, TensorId::q, t.q), key_map(shape, TensorId::k, t.k, kKeys),
                 key_map(shape, TensorId::v, t.v, kKeys), static_cast<T*>(t.o), t.lse, problem_of(shape));
}

//| Steps 2 to 4 have a block for each 128 queries, or 192 at d = 64. Four stages are two tiles of keys and two of values.
//| 80 keys are the most that fit at d = 256.
/// The sizes of steps 2 to 4 for a head dimension.
template <int kHeadDim, bool kPingpong, bool kOverlap>
using SpecialisedFor =
    Specialised<kHeadDim, kHeadDim == 64 ? 3 : 2, kHeadDim == 256 ? 80 : 128, 4, kPingpong, kOverlap>;

/// One version of steps 2 to 4.
template <typename T, typename Config>
void run_specialised(const Shape& shape, const Tensors& t, device::Stream stream) {
  device::launch(specialised<T, Config>, dim3(query_tiles(shape, Config::kConsumers * kRowsOfWarpgroup)),
                 dim3(Config::kThreads), sizeof(SpecialisedShared<T, Config>), stream,
                 query_map(shape, TensorId::q, t.q), key_map(shape, TensorId::k, t.k, Config::kKeys),
                 key_map(shape, TensorId::v, t.v, Config::kKeys), static_cast<T*>(t.o), t.lse,
                 problem_of(shape));
}

//| Step 5 starts as many blocks as there are multiprocessors, or tiles, if those are fewer.
/// One version of step 5. The workspace holds the counter, if the version counts: 0 before the first launch,
/// and every launch leaves it so. Two calls that may run at the same time need a workspace each.
template <typename T, typename Config>
void run_persistent(const Shape& shape, const Tensors& t, device::Stream stream) {
  constexpr int kRows = Config::kConsumers * kRowsOfWarpgroup;
  const TileOrder order = tile_order(shape, kRows, Config::kCausal);
  auto* counter = static_cast<int*>(t.workspace);
  const int blocks = Config::kSchedule == Schedule::single_tile
                         ? order.tiles
                         : std::min(order.tiles, device::multiprocessors());
  device::launch(persistent<T, Config>, dim3(blocks), dim3(Config::kThreads),
                 sizeof(PersistentShared<T, Config>), stream, query_map(shape, TensorId::q, t.q),
                 key_map(shape, TensorId::k, t.k, Config::kKeys),
                 key_map(shape, TensorId::v, t.v, Config::kKeys), query_map(shape, TensorId::o, t.o),
                 static_cast<T*>(t.o), t.lse, problem_of(shape), order, counter);
}

//| ## Which version of step 5 for which shape
//|
//| What an H200 measured: the page has the table.

/// Lengths up to which a version for short sequences is faster under a causal mask.
constexpr int kShortD64 = 1024, kShortD128 = 2048, kShortD256 = 2048;

//| A version is a type that derives from `Persistent` and changes a switch. So the compiler sees every combination that
//| is used, and no other, and an `if constexpr` leaves nothing behind.
/// The causal version for short sequences of head_dim 64. Of such tiles, 192 queries waste more above the
/// diagonal than 128; and most are cut by the mask, where rows that have seen few keys have no limit yet.
struct ShortD64 : Persistent<64, 2, 128, 8, true> {
  static constexpr bool kLazy = false;
};

/// The causal version for short sequences of head_dim 128: they are over before the consumers alternate by
/// themselves, so a fixed order pays.
struct ShortD128 : Persistent<128, 2, 128, 5, true> {
  static constexpr bool kPingpong = true;
};

/// The causal version for long sequences of head_dim 256. A persistent block asks for its next tile while it
/// still has one, and then no other block can take it. With tiles as long as these that costs more time than
/// starting a new block for each.
struct LongD256 : Persistent<256, 2, 64, 5, true> {
  static constexpr Schedule kSchedule = Schedule::single_tile;
};

//| The choice is made on the host, by shape. `use` is called with one type; the program launches it, the tests check it,
//| and the ablation derives from it.
/// Calls `use.operator()<Config>()` with step 5's version for a head dimension, a mask and a length.
template <int kHeadDim, typename Use>
void with_version(const Shape& shape, Use use) {
  const auto with_mask = [&]<bool kCausal>() {
    if constexpr (kHeadDim == 64) {
      if constexpr (kCausal)
        if (shape.seqlen_q <= kShortD64) return use.template operator()<ShortD64>();
      use.template operator()<Persistent<64, 3, 128, 8, kCausal>>();
    } else if constexpr (kHeadDim == 128) {
      if constexpr (kCausal)
        if (shape.seqlen_q <= kShortD128) return use.template operator()<ShortD128>();
      use.template operator()<Persistent<128, 2, 128, 5, kCausal>>();
    } else {
      if constexpr (kCausal)
        if (shape.seqlen_q > kShortD256) return use.template operator()<LongD256>();
      use.template operator()<Persistent<256, 2, 64, 5, kCausal>>();
    }
  };
  shape.causal() ? with_mask.template operator()<true>() : with_mask.template operator()<false>();
}

}  // namespace flashbook::flash3
