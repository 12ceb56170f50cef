/// \file
/// The launches shared by steps 2 and 3, the sweep over their tiles, and chapter 4's count.
#pragma once
#include <numbers>

#include "chapters/03_flash_attention_1/host/traffic.h"
#include "chapters/03_flash_attention_1/step2_queries_outside.cuh"
#include "chapters/03_flash_attention_1/step3_split_k.cuh"
#include "common/attention/tensors.h"
#include "common/device/launch.h"

namespace flashbook::fa1 {

inline Problem problem_of(const Spec& spec) {
  return {spec.seqlen_q, spec.seqlen_k, spec.heads / spec.kv_heads, spec.causal(),
          spec.scale * std::numbers::log2e_v<float>};
}

/// Launches a block per tile of `kBlock` queries of a head. Static, like the simulator's kernels with bounds.
template <typename T, int kHeadDim, int kBlock>
static void run_queries_outside(const Spec& spec, const Tensors& t, device::Stream stream) {
  const dim3 grid(tiles_of(spec.seqlen_q, kBlock), spec.batch * spec.heads);
  device::launch(queries_outside<T, kHeadDim, kBlock>, grid, dim3(kThreads),
                 sizeof(Tiles<T, kHeadDim, kBlock>), stream, static_cast<const T*>(t.q),
                 static_cast<const T*>(t.k), static_cast<const T*>(t.v), static_cast<T*>(t.o), t.lse,
                 problem_of(spec));
}

/// Launches step 3 with tiles of these sizes.
template <typename T, typename Traits>
static void run_split_k(const Spec& spec, const Tensors& t, device::Stream stream) {
  const dim3 grid(tiles_of(spec.seqlen_q, Traits::kRowsQ), spec.batch * spec.heads);
  device::launch(split_k<T, Traits>, grid, dim3(Traits::kThreads), sizeof(SplitKTiles<T, Traits>), stream,
                 static_cast<const T*>(t.q), static_cast<const T*>(t.k), static_cast<const T*>(t.v),
                 static_cast<T*>(t.o), t.lse, problem_of(spec));
}

}  // namespace flashbook::fa1
