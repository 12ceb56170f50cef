//| # How the kernels are launched
//|
//| The host's part of a launch: tensor maps, the order of tiles, and which version of the kernel.
#pragma once
#include "chapters/10_many_gpus/attention.cuh"
#include "chapters/10_many_gpus/host/attend.h"
#include "common/attention/operation.h"
#include "common/device/dispatch.h"
#include "common/hopper/launch.h"

namespace flashbook::many_gpus {

/// Returns the problem of a launch whose first `first_tile` tiles of queries are left out.
inline Problem part_of_problem(const Attention& a, int first_tile) {
  return {problem_of(a.spec), a.queries, a.keys, a.shift, first_tile};
}

//| ## The launch
//|
//| Tiles of queries before the first row that sees any of these keys are left out: under a causal mask, keys
//| of a later rank are seen by no query of a contiguous rank, and by the second half of the queries of a
//| zigzag rank.
template <typename T, typename Traits>
void launch_attention(const Attention& a, device::Queue& queue) {
  const int first_tile = a.carried.first / Traits::kRows;
  Spec rest = a.spec;
  rest.seqlen_q -= first_tile * Traits::kRows;
  TileOrder order = tile_order(rest, Traits::kRows, Traits::kCausal);
  typename Traits::Problem problem{part_of_problem(a, first_tile)};
  problem.causal = a.masked;
  if constexpr (Traits::kDocuments) {
    problem.tiles = a.tiles;
    order.tiles = a.spec.batch * a.spec.heads * a.tile_count;
    order.tiles_of_head = a.tile_count;
  }
  device::launch(attention<T, Traits>, dim3(blocks_for(order, Traits::kSchedule, a.margin)),
                 dim3(Traits::kThreads), sizeof(PersistentShared<T, Traits>), queue.stream(),
                 tile_map(a.spec, TensorId::q, a.q, kRowsPerWarpgroup),
                 tile_map(a.spec, TensorId::k, a.k, Traits::kKeys),
                 tile_map(a.spec, TensorId::v, a.v, Traits::kKeys),
                 tile_map(a.spec, TensorId::o, a.o, kRowsPerWarpgroup), static_cast<T*>(a.o), a.lse, problem,
                 a.carried, order, a.counter);
}

//| ## Choosing the version
//|
//| A whole result uses the version that chapter 5 uses for the same shape. A part uses the version for long
//| sequences, since any sequence worth dividing among GPUs is long.

/// Maximum lengths at which the version for short sequences is faster under a causal mask (chapter 5).
constexpr int kShortD64 = 1024, kShortD128 = 2048;

struct ShortD64 : Version<VersionSizes{.head_dim = 64, .causal = true}> {
  static constexpr bool kLazy = false;
};
struct ShortD128 : Version<VersionSizes{.head_dim = 128, .causal = true}> {
  static constexpr bool kPingpong = true;
};

template <int kHeadDim, bool kCausal, bool kCarries>
using Long = Version<VersionSizes{
    .head_dim = kHeadDim, .consumers = kHeadDim == 64 ? 3 : 2, .causal = kCausal, .carries = kCarries}>;

//| Documents have one version, for whole results and parts. It applies the mask everywhere, since a document
//| may end anywhere.
template <int kHeadDim>
struct InDocuments
    : Version<VersionSizes{.head_dim = kHeadDim, .causal = true, .carries = true, .documents = true}> {
  static_assert(InDocuments::kRows == kRowsPerDocumentTile,
                "the host cuts documents into tiles of this many queries");
};

/// Calls `use.operator()<Traits>()` with the version for a launch.
template <int kHeadDim, typename Use>
void with_version(const Attention& a, Use use) {
  if (a.tiles != nullptr) return use.template operator()<InDocuments<kHeadDim>>();
  if (a.carried.o != nullptr) {
    if (a.masked) return use.template operator()<Long<kHeadDim, true, true>>();
    return use.template operator()<Long<kHeadDim, false, true>>();
  }
  if (!a.masked) return use.template operator()<Long<kHeadDim, false, false>>();
  const int queries = a.spec.seqlen_q;
  if constexpr (kHeadDim == 64) {
    if (queries <= kShortD64) return use.template operator()<ShortD64>();
  } else if constexpr (kHeadDim == 128) {
    if (queries <= kShortD128) return use.template operator()<ShortD128>();
  }
  use.template operator()<Long<kHeadDim, true, false>>();
}

template <int kHeadDim>
void attend_with(const Attention& a, device::Queue& queue) {
  device::with_16_bit_type(a.spec.dtype, [&]<typename T>() {
    with_version<kHeadDim>(a, [&]<typename Traits>() { launch_attention<T, Traits>(a, queue); });
  });
}

}  // namespace flashbook::many_gpus
