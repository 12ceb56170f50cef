/// \file
/// The versions of one head dimension: ablation_d64.cu and its neighbours instantiate it, each a file of its
/// own, since it compiles more than a dozen kernels.
#pragma once
#include "bench/ablation.h"
#include "chapters/05_flash_attention_3/host/switches.cuh"

namespace flashbook {

template <int kHeadDim>
void run_ablation(const Shape& shape, const Tensors& tensors, device::Stream stream, int which) {
  using namespace flash3;
  with_version<kHeadDim>(shape, [&]<typename Config>() {
    const auto run = [&]<typename Version>() {
      run_persistent<__nv_bfloat16, Version>(shape, tensors, stream);
    };
    switch (which) {
      case 1:
        return run.template operator()<AsItIs<Config>>();
      case 2:
        return run.template operator()<OtherStay<Config>>();
      case 3:
        return run.template operator()<OtherOrder<Config>>();
      case 4:
        if constexpr (Config::kCausal) return run.template operator()<OneLoop<Config>>();
        break;
      case 5:
        return run.template operator()<OtherRescaling<Config>>();
      case 6:
        if constexpr (Config::kStoreByTma) return run.template operator()<FromRegisters<Config>>();
        break;
      case 7:
        return run.template operator()<OtherPingpong<Config>>();
      case 8:
        // Three consumers have 160 registers a thread: with loops that ask what is trimmed they spill.
        if constexpr (kHeadDim != 64) return run.template operator()<Trimmed<Config>>();
        break;
    }
  });
}

}  // namespace flashbook
