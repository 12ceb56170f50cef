//| # A prefix read once
//|
//| All sequences may share their first pages. Attention over these, for all sequences at once, is a separate
//| problem, in which sequences play the role of queries. Attention over the rest is step 6 from the first
//| key after the prefix on. Both write their rows in float32, and step 3's second kernel merges the two
//| parts.
#pragma once
#include "chapters/08_decoding/host/launch.cuh"

namespace flashbook::decoding {

/// The launches of step 6 with a prefix that all sequences share.
struct SharedLaunch {
  Spec prefix;  ///< what the launch over the prefix computes: sequences in place of queries, and the reverse
  RingLaunch prefix_part, rest_part;
};

inline SharedLaunch shared_launch(const Spec& spec, bool boxes = false) {
  SharedLaunch found = {.prefix = spec, .prefix_part = {}, .rest_part = {}};
  std::swap(found.prefix.batch, found.prefix.seqlen_q);
  found.prefix.seqlen_k = std::max(spec.paging.shared, 1);
  found.prefix_part = ring_launch(found.prefix, true, true, false, boxes);
  Spec rest = spec;
  rest.seqlen_k = std::max(spec.seqlen_k - spec.paging.shared, 1);
  found.rest_part = ring_launch(rest, true, false, false, boxes);
  found.rest_part.plan.first_key = spec.paging.shared;
  return found;
}

/// Returns the bytes of the workspace for a prefix of any length, since a caller asks before it is known.
/// Both launches have their counters and parts in the same place, one after the other.
inline int64_t shared_workspace_bytes(const Spec& spec) {
  const Spec prefix = shared_launch(spec).prefix;
  const int row_tiles = std::max(ring_row_tiles(spec), ring_row_tiles(prefix));
  const int64_t places = 2 * int64_t(device::multiprocessors()) * row_tiles * kRowsPerMma;
  return kArrivalBytes + places * (spec.head_dim + 1) * int64_t(sizeof(float)) + partial_bytes(spec, 2);
}

template <typename T, int kHeadDim, int kElementBytes>
void run_shared(const Spec& spec, const Tensors& t, device::Stream stream, bool boxes) {
  const SharedLaunch launch = shared_launch(spec, boxes);
  const Problem problem = problem_of(spec, t, spec.heads / spec.kv_heads);
  const auto transposed = [](const Strides& s) { return Strides{s.row, s.head, s.batch}; };
  Problem prefix_part = problem;
  prefix_part.batch = spec.seqlen_q;
  prefix_part.seqlen_q = spec.batch;
  prefix_part.seqlen_k = spec.paging.shared;
  prefix_part.causal = false;  // all queries come after the prefix
  prefix_part.lengths = nullptr;
  prefix_part.q_strides = transposed(problem.q_strides);
  prefix_part.number_strides = transposed(problem.number_strides);

  //| The two results are at the workspace's end.
  auto* end = static_cast<unsigned char*>(t.workspace) + shared_workspace_bytes(spec);
  const Partials both = partials_in(end - partial_bytes(spec, 2), spec, 2);
  with_rows<kHeadDim, kElementBytes>(launch.prefix, [&]<typename Traits>() {
    Workspace workspace = ring_workspace(t.workspace, launch.prefix, launch.prefix_part);
    workspace.whole = both;
    CacheOf<Traits> cache = cache_of<Traits>(spec, t, boxes);
    const KeyMaps maps = boxes ? key_maps(spec, t, Traits::kKeys) : KeyMaps{};
    cache.pages_of_sequence = 0;                           // all sequences share the first one's pages
    if constexpr (kElementBytes == 1) cache.to_batch = 0;  // and its scales
    run_ring<T, Traits>(prefix_part, cache, boxes ? &maps : nullptr, workspace, t, stream,
                        launch.prefix_part.blocks, launch.prefix_part.plan);
  });
  with_rows<kHeadDim, kElementBytes>(spec, [&]<typename Traits>() {
    Workspace workspace = ring_workspace(t.workspace, spec, launch.rest_part);
    workspace.whole = {both.o + spec.q_elements(), both.lse + spec.q_rows()};
    run_ring<T, Traits>(spec, problem, workspace, t, stream, launch.rest_part, launch.rest_part.plan);
  });
  run_merge<T, kHeadDim>(problem, both, 2, t, stream);
}

//| Without such a prefix, a step is one launch.
/// Runs steps 4 to 6 and 9, or step 8 for elements of one byte, with as many rows as the shape needs.
template <typename T, int kHeadDim, int kElementBytes = 2>
void run_ring(const Spec& spec, const Tensors& t, device::Stream stream, bool equal_work,
              bool boxes = false) {
  if (equal_work && spec.paging.shared > 0)
    return run_shared<T, kHeadDim, kElementBytes>(spec, t, stream, boxes);
  constexpr bool kHalves = kHeadDim < 256 && kElementBytes == 2;
  const RingLaunch launch =
      ring_launch(spec, equal_work, t.tables[int(TableId::lengths)] == nullptr, kHalves, boxes);
  if constexpr (kHalves)
    if (launch.in_halves)
      return run_ring<T, RingKernelTraits<RingSizes{.head_dim = kHeadDim, .blocks = 2}>>(spec, t, stream,
                                                                                         launch);
  with_rows<kHeadDim, kElementBytes>(
      spec, [&]<typename Traits>() { run_ring<T, Traits>(spec, t, stream, launch); });
}

}  // namespace flashbook::decoding
