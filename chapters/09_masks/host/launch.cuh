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

//| ## The kernels' view of the shape

inline Problem problem_of(const Spec& spec) {
  return {.batch = spec.batch,
          .seqlen_q = spec.seqlen_q,
          .seqlen_k = spec.seqlen_k,
          .heads = spec.heads,
          .group = spec.heads / spec.kv_heads,
          .q_map_strides = {},
          .k_map_strides = {},
          .v_map_strides = {},
          .o_map_strides = {},
          .scale_log2 = float(spec.scale * std::numbers::log2e),
          .o_strides = spec.strides(TensorId::o),
          .head_dim = spec.head_dim};
}

/// Returns a window and a prefix. A side that is longer than any sequence is no limit.
inline Band band_of(const Visibility& v) {
  const auto side = [](int keys) { return keys < 0 ? Band::kNoLimit : std::min(keys, Band::kNoLimit); };
  return {side(v.window.left), side(v.window.right), v.window.sinks, v.prefix};
}

inline DocumentBounds documents_of(const Spec& spec, const Tensors& t) {
  const auto table = [&](TableId id) { return static_cast<const int*>(t.tables[int(id)]); };
  return {table(TableId::document_query), table(TableId::document_key),
          std::max(int(spec.visibility.documents.first_query.size()) - 1, 0)};
}

inline Ranges ranges_of(const Spec& spec, const Tensors& t) {
  return {band_of(spec.visibility), documents_of(spec, t)};
}

//| ## The order of tiles
//|
//| Under every mask that hides what comes later, the last tile of queries of a head goes first, since its row
//| of tiles is the longest. Under a window only the first rows of a head are shorter than the others. They
//| are processed last, and fill the gaps at the end of the launch.
//|
//| A section of heads (chapter 5) is as many heads as have their keys in the L2 at the same time. Under a
//| window or in documents blocks use few of a head's keys at the same time, so a section has more heads, or
//| all. Then all heads end together, with their short rows.

constexpr int kRowsInUse = 1024;  ///< a head's queries that blocks work on at the same time

/// Returns whether later queries see more keys, without a limit to the left. (Used by step 6.)
inline bool is_uneven(const Visibility& v) { return v.window.right >= 0 && v.window.left < 0; }

/// Returns how many keys of a head are in use at the same time: those of a window, or of a document. The host
/// knows the number of documents, but not their lengths.
inline int64_t keys_in_use(const Spec& spec) {
  const Visibility& v = spec.visibility;
  int64_t keys = spec.seqlen_k;
  if (v.window.left >= 0 && v.window.right >= 0)
    keys = std::min(keys, int64_t(v.window.left) + v.window.right + v.prefix + kRowsInUse);
  if (const std::size_t bounds = v.documents.first_key.size(); bounds > 1)
    keys = std::min(keys, spec.seqlen_k / int64_t(bounds - 1));
  return std::max<int64_t>(keys, 1);
}

template <typename Traits>
InBatch in_batch(const Spec& spec) {
  return InBatch(tile_order(spec, Traits::kRows, spec.visibility.window.right >= 0,
                            kSectionBytes * spec.seqlen_k / keys_in_use(spec)));
}

//| ## Rows after the last sequence

/// Returns a packed tensor whose rows end at `*end`.
inline OpenEnd open_end(const Spec& spec, TensorId id, void* first, const int* end) {
  const bool is_query = id == TensorId::o || id == TensorId::dq;
  return {first,
          spec.strides(id),
          is_query ? spec.heads : spec.kv_heads,
          is_query ? spec.seqlen_q : spec.seqlen_k,
          columns_of(spec, id),
          end};
}

/// Returns the outputs of a forward pass, whose queries end at `*end`.
inline OpenEnds open_ends(const Spec& spec, const Tensors& t, const int* end) {
  return {{open_end(spec, TensorId::o, t.o, end)}, t.lse};
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
/// Tensor maps, and how a kernel addresses heads and rows in them.
struct Maps {
  TileMap q, k, v, o;
  MapStrides q_strides, k_strides, v_strides, o_strides;
};

/// Returns the maps of tensors that are all batch entries or all packed.
template <typename Traits>
Maps maps_of(const Spec& spec, const Tensors& t, TileMap (*map)(const Spec&, TensorId, const void*, int),
             MapStrides (*strides)(const Spec&, TensorId)) {
  return {map(spec, TensorId::q, t.q, kRowsPerWarpgroup),
          map(spec, TensorId::k, t.k, Traits::kKeys),
          map(spec, TensorId::v, t.v, Traits::kKeys),
          map(spec, TensorId::o, t.o, kRowsPerWarpgroup),
          strides(spec, TensorId::q),
          strides(spec, TensorId::k),
          strides(spec, TensorId::v),
          strides(spec, TensorId::o)};
}

/// Launches the kernel for `tiles` tiles of queries, or more than there are. The counter is 0.
template <typename T, typename Traits, typename Policy>
void run_masked(const Spec& spec, const Tensors& t, device::Stream stream, const Policy& policy,
                int64_t tiles, int* counter, const Maps& maps) {
  const int blocks = int(std::min<int64_t>(tiles, device::multiprocessors()));
  Problem problem = problem_of(spec);
  problem.head_dim = spec.value_dim;
  problem.blocks = blocks;
  problem.q_map_strides = maps.q_strides, problem.o_map_strides = maps.o_strides;
  problem.k_map_strides = maps.k_strides, problem.v_map_strides = maps.v_strides;
  device::launch(Policy::kExtras.prepared ? device::Start::dependent : device::Start::plain,
                 masked<T, Traits, Policy>, dim3(blocks), dim3(Traits::kThreads),
                 sizeof(BlockShared<T, Traits>), stream, maps.q, maps.k, maps.v, maps.o, static_cast<T*>(t.o),
                 t.lse, problem, policy, counter);
}

/// Returns strides with which a batch entry's heads are a separate index in its maps.
inline MapStrides batch_strides(const Spec&, TensorId) { return {}; }

/// Calls `body.operator()<T, Traits>()` for a shape of 16-bit elements. `kWide`: there is a kernel for wide
/// keys.
template <bool kLight, bool kWide = false, typename Body>
void with_traits(const Sizes& sizes, Body body) {
  if constexpr (kWide && device::kHasAllHeadDims)
    if (has_wide_keys(sizes))
      return device::with_16_bit_type(sizes.dtype,
                                      [&]<typename T>() { body.template operator()<T, WideKeys>(); });
  const int columns = tile_columns(std::max(sizes.head_dim, sizes.value_dim));
  device::with_16_bit_type_and_head_dim(sizes.dtype, columns, [&]<typename T, int kHeadDim>() {
    body.template operator()<T, KernelTraits<kHeadDim, kLight>>();
  });
}

/// One step whose sequences are batch entries. `policy_of.operator()<Traits>(order)` makes its policy, and
/// launches the kernel that prepares, if there is one.
template <bool kLight, bool kWide = false, typename PolicyOf>
void run_in_batch(const Spec& spec, const Tensors& t, device::Stream stream, const PolicyOf& policy_of) {
  auto* counter = static_cast<int*>(t.workspace);
  with_traits<kLight, kWide>(spec, [&]<typename T, typename Traits>() {
    const InBatch order = in_batch<Traits>(spec);
    const auto policy = policy_of.template operator()<Traits>(order);
    run_masked<T, Traits>(spec, t, stream, policy, order.order.tiles, counter,
                          maps_of<Traits>(spec, t, tile_map, batch_strides));
  });
}

}  // namespace flashbook::masks
