/// \file
/// Chapter 7's own kernels for Hopper, one version of each, in which faults are planted. At head_dim 64 these
/// are step 5, which computes dQ one iteration late, and then step 6, which sums dQ by TMA in turns and
/// overwrites step 5's results; at 128 it is step 3, whose consumers load the tiles and add from registers.
#pragma once
#include "chapters/07_backward/host/hopper_launch.cuh"

namespace flashbook::backward {

template <int kHeadDim>
void run(const Spec& spec, const Tensors& tensors) {
  using T = __nv_bfloat16;
  using Traits = Version<kHeadDim, false>;
  begin<T, kHeadDim>(spec, tensors, nullptr, 6);
  if constexpr (kHeadDim == 64) {
    run_blocks<T, LateDq<Traits>>(spec, tensors, nullptr);
    begin<T, kHeadDim>(spec, tensors, nullptr, 6);
    run_blocks<T, Deterministic<Traits>>(spec, tensors, nullptr);
  } else {
    run_single<T, FromRegisters<Traits>>(spec, tensors, nullptr);
  }
  run_convert<T, kHeadDim, Traits::kQueries>(spec, tensors, nullptr);
}

inline int64_t workspace_bytes(const Spec& spec) {
  return bytes_of_workspace(spec, kWorkspaceRows, true) + counters(spec, 6) * int64_t(sizeof(int));
}

}  // namespace flashbook::backward
