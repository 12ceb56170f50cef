//| # How the ring is launched with rules
//|
//| This is the host's part of [rules.cuh](../rules.cuh): it converts the shape to the kernel's arguments, and
//| launches as steps 4 to 6 do.
//|
//| ![A sequence's keys, of which a window at the end is cut into tiles and dealt out to blocks; what lies
//| before it is not read; a sink comes in where parts are merged](../../../docs/figures/decode_rules.svg)
#pragma once
#include "chapters/08_decoding/host/launch.cuh"
#include "chapters/08_decoding/host/rules.h"
#include "chapters/08_decoding/rules.cuh"
#include "common/device/dispatch.h"

namespace flashbook::decoding {

//| The window goes into the plan, whose launch has made parts of the window's keys. Slopes are divided by
//| what the softmax will multiply scores by, the scale or a softcap's $2c$.
template <bool kFunctions, bool kPadded = false>
Rules<kFunctions, kPadded> rules_of(const Spec& spec, const Tensors& t, const RingLaunch& launch) {
  using Of = Rules<kFunctions, kPadded>;
  const Window& window = spec.visibility.window;
  const double cap = spec.score.softcap;
  const auto floats = [&](TableId id) { return static_cast<const float*>(t.tables[int(id)]); };
  Of rules = {launch.plan};
  rules.left = window.left < 0 ? Of::kNoLimit : std::min(window.left, Of::kNoLimit);
  rules.right = window.right < 0 ? spec.seqlen_q : std::min(window.right, spec.seqlen_q);

  rules.align = launch.begin_at;
  rules.paddings = static_cast<const int*>(t.tables[int(TableId::paddings)]);
  if (spec.batching.packed_queries > 0)
    rules.first_query = static_cast<const int*>(t.tables[int(TableId::document_query)]);
  rules.tile_rows = launch.rows;
  rules.sinks = floats(TableId::sinks);
  rules.slopes = floats(TableId::slopes);
  rules.softcap_factor = cap > 0 ? float(-2 * std::numbers::log2e * spec.scale / cap) : 0.0f;
  rules.slope_factor = float(1 / (cap > 0 ? 2 * cap : double(spec.scale)));
  rules.score_offset = float(-cap);
  rules.slopes_of_batch = spec.score.alibi.size() > std::size_t(spec.heads) ? spec.heads : 0;
  rules.head_dim = spec.head_dim;
  return rules;
}

inline Problem problem_with_rules(const Spec& spec, const Tensors& t) {
  Problem problem = problem_of(spec, t, spec.heads / spec.kv_heads);
  problem.causal = false;  // `rules` holds the causal limit
  //| If queries are packed, a row plays the role of the batch entry.
  if (spec.batching.packed_queries > 0) {
    problem.q_strides.batch = problem.q_strides.row;
    problem.o_strides.batch = problem.o_strides.row;
    problem.number_strides = {1, spec.batching.packed_queries, 1};
  }
  if (const double cap = spec.score.softcap; cap > 0)
    problem.scale_log2 = float(2 * cap * std::numbers::log2e);
  return problem;
}

template <typename T, int kHeadDim, bool kFunctions, bool kPadded = false>
void run_with_rules(const Spec& spec, const Tensors& t, device::Stream stream, const RingLaunch& launch) {
  const Problem problem = problem_with_rules(spec, t);
  with_rows<kHeadDim>(spec, [&]<typename Traits>() {
    run_ring<T, Traits>(spec, problem, workspace_of(spec, t, launch), t, stream, launch,
                        rules_of<kFunctions, kPadded>(spec, t, launch));
  });
}

//| Each type and tile of rows has three kernels: one with functions on scores, one without, and one for all
//| tensors with fewer columns than tiles.
/// Steps 4 to 6 and 9 with rules.
template <int kHeadDim>
void run_with_rules(const Spec& spec, const Tensors& t, device::Stream stream, bool equal_work, bool boxes) {
  const RingLaunch launch =
      ring_launch(spec, equal_work, t.tables[int(TableId::lengths)] == nullptr, false, boxes);
  const bool functions = spec.score.softcap > 0 || !spec.score.alibi.empty();
  device::with_16_bit_type(spec.dtype, [&]<typename T>() {
    if (spec.head_dim != kHeadDim) return run_with_rules<T, kHeadDim, true, true>(spec, t, stream, launch);
    functions ? run_with_rules<T, kHeadDim, true>(spec, t, stream, launch)
              : run_with_rules<T, kHeadDim, false>(spec, t, stream, launch);
  });
}

}  // namespace flashbook::decoding
