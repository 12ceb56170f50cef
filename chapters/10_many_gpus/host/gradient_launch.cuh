//| # How the gradient's kernel is launched
//|
//| A launch takes key heads `first_head` to `first_head + heads` - 1 of all batch entries and the query heads
//| that share them. A rank's tensors are [heads, tokens, head_dim], so these are ordinary tensors that begin
//| at an offset.
#pragma once
#include "chapters/10_many_gpus/host/gradient.h"
#include "chapters/10_many_gpus/step6_blocks.cuh"
#include "common/attention/operation.h"
#include "common/device/dispatch.h"
#include "common/hopper/launch.h"

namespace flashbook::many_gpus {

template <typename T, typename Version>
void launch_gradient(const Gradient& g, device::Queue& queue) {
  constexpr int kHeadDim = Version::kHeadDim;
  Spec spec = g.spec;
  const int group = spec.heads / spec.kv_heads;
  const int64_t keys = int64_t(spec.seqlen_k) * kHeadDim, first_key = g.first_head * keys;
  const int64_t first_query = int64_t(g.first_head) * group * spec.seqlen_q * kHeadDim;
  const int64_t all_keys = int64_t(spec.batch) * spec.kv_heads * keys;
  spec.batch = 1;
  spec.kv_heads = g.heads;
  spec.heads = g.heads * group;
  typename Version::Problem problem{GradientProblem{.seqlen_q = spec.seqlen_q,
                                                    .seqlen_k = spec.seqlen_k,
                                                    .group = group,
                                                    .causal = g.masked,
                                                    .scale = spec.scale,
                                                    .scale_log2 = spec.scale * kLog2e,
                                                    .padded_q = padded_rows(spec.seqlen_q),
                                                    .queries = g.queries,
                                                    .keys = g.keys,
                                                    .shift = g.shift}};
  if constexpr (Version::kSeen == Seen::documents) {
    static_assert(kTileKeys == kKeysPerGradientTile, "the host lists tiles of this many keys");
    problem.seen = g.seen;
    problem.tiles = g.tiles;
  }
  const int64_t rows = int64_t(spec.heads) * problem.padded_q,
                first_row = int64_t(g.first_head) * group * problem.padded_q;
  const int tiles = ceil_div(spec.seqlen_k, kTileKeys);
  const TileOrder order = {g.heads * tiles,
                           tiles,
                           1,
                           g.heads,
                           kv_heads_of_gradient_section(spec, int64_t(group) * spec.seqlen_q),
                           Version::kSeen != Seen::all};
  const auto from = [](const void* base, int64_t element) { return static_cast<const T*>(base) + element; };
  const auto to = [&](void* whole, float* part) {
    return KeyGradient<T>{part == nullptr ? static_cast<T*>(whole) + first_key : nullptr,
                          part == nullptr ? nullptr : part + first_key};
  };
  device::launch(clear_counter, dim3(1), dim3(1), 0, queue.stream(), g.counter);
  device::launch(gradient<T, Version>, dim3(blocks_for(order, Version::kSchedule, g.margin)),
                 dim3(Version::kThreads), sizeof(BackwardShared<T, Version>), queue.stream(),
                 tile_map(spec, TensorId::q, from(g.q, first_query), Version::kQueries),
                 tile_map(spec, TensorId::k, from(g.k, first_key), kTileKeys),
                 tile_map(spec, TensorId::v, from(g.v, first_key), kTileKeys),
                 tile_map(spec, TensorId::d_o, from(g.d_o, first_query), Version::kQueries),
                 row_map(g.workspace.lse + first_row, rows, Version::kQueries),
                 row_map(g.workspace.d + first_row, rows, Version::kQueries), to(g.dk, g.part),
                 to(g.dv, g.part == nullptr ? nullptr : g.part + all_keys),
                 g.workspace.dq + first_row * kHeadDim, problem, order, g.counter);
}

template <typename T, int kHeadDim, Seen kSeen>
void launch_versions(const Gradient& g, device::Queue& queue) {
  launch_gradient<T, GradientVersion<kHeadDim, kSeen>>(g, queue);
  if constexpr (kHeadDim == 256)
    launch_gradient<T, GradientVersion<kHeadDim, kSeen, Sums::keys_and_queries>>(g, queue);
}

template <int kHeadDim>
void differentiate_with(const Gradient& g, device::Queue& queue) {
  device::with_16_bit_type(g.spec.dtype, [&]<typename T>() {
    if (g.tiles != nullptr)
      launch_versions<T, kHeadDim, Seen::documents>(g, queue);
    else if (g.masked)
      launch_versions<T, kHeadDim, Seen::causal>(g, queue);
    else
      launch_versions<T, kHeadDim, Seen::all>(g, queue);
  });
}

}  // namespace flashbook::many_gpus
