/// \file
/// Chapter 7's own kernels for Hopper, one version of each, for faults to be planted in: at head_dim 64 step
/// 5, which computes dQ a round late, and then step 6, whose sums of dQ go by TMA and in turns; at 128 step
/// 3, where consumers bring the tiles and add from registers. What step 5 leaves is overwritten.
#pragma once
#include "chapters/07_backward/host/hopper_launch.cuh"

namespace flashbook::backward {

template <int kHeadDim>
void run(const Shape& shape, const Tensors& tensors) {
  using T = __nv_bfloat16;
  using Traits = Version<kHeadDim, false>;
  begin<T, kHeadDim>(shape, tensors, nullptr, 6);
  if constexpr (kHeadDim == 64) {
    run_blocks<T, LateDq<Traits>>(shape, tensors, nullptr);
    begin<T, kHeadDim>(shape, tensors, nullptr, 6);
    run_blocks<T, Deterministic<Traits>>(shape, tensors, nullptr);
  } else {
    run_single<T, FromRegisters<Traits>>(shape, tensors, nullptr);
  }
  run_convert<T, kHeadDim, Traits::kQueries>(shape, tensors, nullptr);
}

inline int64_t workspace_bytes(const Shape& shape) {
  return bytes_of_workspace(shape, kWorkspaceRows, true) + counters(shape, 6) * int64_t(sizeof(int));
}

}  // namespace flashbook::backward
