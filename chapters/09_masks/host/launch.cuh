//| # How the kernel is launched
//|
//| The host's part: tensor maps, the policy of each step, and the launch that steps 1 to 5 share.
//|
//| ![Tiles of queries by head, numbered in the order in which blocks take them: sections of heads, the
//| longest first](../../../docs/figures/tile_order.svg)
#pragma once
#include "chapters/09_masks/attention.cuh"
#include "chapters/09_masks/step2_varlen.cuh"
#include "common/attention/tensors.h"
#include "common/device/dispatch.h"
#include "common/hopper/launch.h"

namespace flashbook::masks {

//| ## What kernels know of the shape

inline Problem problem_of(const Shape& shape) {
  return {.batch = shape.batch,
          .seqlen_q = shape.seqlen_q,
          .seqlen_k = shape.seqlen_k,
          .heads = shape.heads,
          .group = shape.heads / shape.kv_heads,
          .q_map_strides = {},
          .k_map_strides = {},
          .v_map_strides = {},
          .o_map_strides = {},
          .scale_log2 = float(shape.scale * std::numbers::log2e),
          .o_strides = shape.strides(TensorId::o),
          .head_dim = shape.head_dim};
}

/// Returns a window and a prefix. A side that is longer than any sequence is no limit.
inline Band band_of(const Visibility& v) {
  const auto side = [](int keys) { return keys < 0 ? Band::kNoLimit : std::min(keys, Band::kNoLimit); };
  return {side(v.window.left), side(v.window.right), v.window.sinks, v.prefix};
}

inline DocumentBounds documents_of(const Shape& shape, const Tensors& t) {
  const auto table = [&](TableId id) { return static_cast<const int*>(t.tables[int(id)]); };
  return {table(TableId::document_query), table(TableId::document_key),
          std::max(int(shape.visibility.documents.first_query.size()) - 1, 0)};
}

inline Ranges ranges_of(const Shape& shape, const Tensors& t) {
  return {band_of(shape.visibility), documents_of(shape, t)};
}

//| ## The order of tiles
//|
//| Under every mask that hides what comes later, the last tile of queries of a head goes first, since its row
//| of tiles is the longest. Under a window only the first rows of a head are shorter than the others. They
//| come last, and fill the gaps at the end of the launch.
//|
//| A section of heads (chapter 5) is as many heads as have their keys in the L2 at the same time. Under a
//| window or in documents blocks use few of a head's keys at the same time, so a section has more heads, or
//| all. Then all heads end together, with their short rows.

constexpr int kRowsInUse = 1024;  ///< a head's queries that blocks work on at the same time

/// Returns whether later queries see more keys, without a limit to the left. (Step 6 asks.)
inline bool is_uneven(const Visibility& v) { return v.window.right >= 0 && v.window.left < 0; }

/// Returns how many keys of a head are in use at the same time: those of a window, or of a document. The host
/// knows how many documents there are, and not how long each is.
inline int64_t keys_in_use(const Shape& shape) {
  const Visibility& v = shape.visibility;
  int64_t keys = shape.seqlen_k;
  if (v.window.left >= 0 && v.window.right >= 0)
    keys = std::min(keys, int64_t(v.window.left) + v.window.right + v.prefix + kRowsInUse);
  if (const std::size_t bounds = v.documents.first_key.size(); bounds > 1)
    keys = std::min(keys, shape.seqlen_k / int64_t(bounds - 1));
  return std::max<int64_t>(keys, 1);
}

template <typename Traits>
InBatch in_batch(const Shape& shape) {
  return InBatch(tile_order(shape, Traits::kRows, shape.visibility.window.right >= 0,
                            kSectionBytes * shape.seqlen_k / keys_in_use(shape)));
}

//| ## After the last sequence

/// Returns a packed tensor whose rows end at `*end`.
inline OpenEnd open_end(const Shape& shape, TensorId id, void* first, const int* end) {
  const bool is_query = id == TensorId::o || id == TensorId::dq;
  return {first,
          shape.strides(id),
          is_query ? shape.heads : shape.kv_heads,
          is_query ? shape.seqlen_q : shape.seqlen_k,
          columns_of(shape, id),
          end};
}

/// Returns the outputs of a forward pass, whose queries end at `*end`.
inline OpenEnds open_ends(const Shape& shape, const Tensors& t, const int* end) {
  return {{open_end(shape, TensorId::o, t.o, end)}, t.lse};
}

/// Blocks that clear: enough for all rows, and fewer than there are multiprocessors, since one block plans.
inline unsigned clearing_blocks(const OpenEnds& open) {
  int64_t pieces = 0;
  for (const OpenEnd& t : open.tensors) pieces += int64_t(t.rows) * t.heads * t.columns / 8;
  return unsigned(std::min<int64_t>(ceil_div(pieces, int64_t(kPlanThreads)), device::multiprocessors() - 1));
}

//| ## The launch
//|
//| In steps 2, 4, 5 and 8 a small kernel runs before this one, and makes a plan or classifies tiles. Then the
//| launch is a dependent one: its blocks begin while the small kernel ends, initialise their barriers, and
//| wait for it.
/// Tensor maps, and how a kernel names heads and rows in them.
struct Maps {
  TileMap q, k, v, o;
  MapStrides q_strides, k_strides, v_strides, o_strides;
};

/// Returns the maps of tensors that are all of one kind: batch entries, or packed.
template <typename Traits>
Maps maps_of(const Shape& shape, const Tensors& t, TileMap (*map)(const Shape&, TensorId, const void*, int),
             MapStrides (*strides)(const Shape&, TensorId)) {
  return {map(shape, TensorId::q, t.q, kRowsPerWarpgroup),
          map(shape, TensorId::k, t.k, Traits::kKeys),
          map(shape, TensorId::v, t.v, Traits::kKeys),
          map(shape, TensorId::o, t.o, kRowsPerWarpgroup),
          strides(shape, TensorId::q),
          strides(shape, TensorId::k),
          strides(shape, TensorId::v),
          strides(shape, TensorId::o)};
}

/// Launches the kernel for `tiles` tiles of queries, or more than there are. The counter is 0.
template <typename T, typename Traits, typename Policy>
void run_masked(const Shape& shape, const Tensors& t, device::Stream stream, const Policy& policy,
                int64_t tiles, int* counter, const Maps& maps) {
  const int blocks = int(std::min<int64_t>(tiles, device::multiprocessors()));
  Problem problem = problem_of(shape);
  problem.head_dim = shape.value_dim;
  problem.blocks = blocks;
  problem.q_map_strides = maps.q_strides, problem.o_map_strides = maps.o_strides;
  problem.k_map_strides = maps.k_strides, problem.v_map_strides = maps.v_strides;
  device::launch(Policy::kExtras.prepared ? device::Start::dependent : device::Start::plain,
                 masked<T, Traits, Policy>, dim3(blocks), dim3(Traits::kThreads),
                 sizeof(BlockShared<T, Traits>), stream, maps.q, maps.k, maps.v, maps.o, static_cast<T*>(t.o),
                 t.lse, problem, policy, counter);
}

/// Returns strides with which a batch entry's heads are a separate index in its maps.
inline MapStrides batch_strides(const Shape&, TensorId) { return {}; }

/// Calls `body.operator()<T, Traits>()` for a shape of 16-bit elements. `kWide`: there is a kernel for wide
/// keys.
template <bool kLight, bool kWide = false, typename Body>
void with_traits(const Shape& shape, Body body) {
  if constexpr (kWide && device::kHasAllHeadDims)
    if (has_wide_keys(shape))
      return device::with_16_bit_type(shape.dtype,
                                      [&]<typename T>() { body.template operator()<T, WideKeys>(); });
  const int columns = tile_columns(std::max(shape.head_dim, shape.value_dim));
  device::with_16_bit_type_and_head_dim(shape.dtype, columns, [&]<typename T, int kHeadDim>() {
    body.template operator()<T, KernelTraits<kHeadDim, kLight>>();
  });
}

/// One step whose sequences are batch entries. `policy_of.operator()<Traits>(order)` makes its policy, and
/// launches the kernel that prepares, if there is one.
template <bool kLight, bool kWide = false, typename PolicyOf>
void run_in_batch(const Shape& shape, const Tensors& t, device::Stream stream, const PolicyOf& policy_of) {
  auto* counter = static_cast<int*>(t.workspace);
  with_traits<kLight, kWide>(shape, [&]<typename T, typename Traits>() {
    const InBatch order = in_batch<Traits>(shape);
    const auto policy = policy_of.template operator()<Traits>(order);
    run_masked<T, Traits>(shape, t, stream, policy, order.order.tiles, counter,
                          maps_of<Traits>(shape, t, tile_map, batch_strides));
  });
}

}  // namespace flashbook::masks
