/// \file
/// Versions of chapter 5's step 5 for one head dimension. ablation_05_d64.cu and its neighbours instantiate
/// them in separate files, since each compiles more than a dozen kernels.
#pragma once
#include "bench/ablation.h"
#include "chapters/05_flash_attention_3/host/switches.cuh"

namespace flashbook {

template <int kHeadDim>
void run_ablation_05(const Spec& spec, const Tensors& tensors, device::Stream stream, int which) {
  using namespace fa3;
  with_version<kHeadDim>(spec, [&]<typename Traits>() {
    const auto run = [&]<typename Version>() {
      run_persistent<__nv_bfloat16, Version>(spec, tensors, stream);
    };
    switch (which) {
      case 1:
        return run.template operator()<AsItIs<Traits>>();
      case 2:
        return run.template operator()<OtherStay<Traits>>();
      case 3:
        return run.template operator()<OtherOrder<Traits>>();
      case 4:
        if constexpr (Traits::kCausal) return run.template operator()<OneLoop<Traits>>();
        break;
      case 5:
        return run.template operator()<OtherRescaling<Traits>>();
      case 6:
        if constexpr (Traits::kStoreByTma) return run.template operator()<FromRegisters<Traits>>();
        break;
      case 7:
        return run.template operator()<OtherPingpong<Traits>>();
    }
  });
}

}  // namespace flashbook
