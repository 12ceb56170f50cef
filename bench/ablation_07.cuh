/// \file
/// Versions of chapter 7's step 5 for one head dimension, instantiated by ablation_07_d64.cu and its
/// neighbour.
#pragma once
#include "bench/ablation.h"
#include "chapters/07_backward/host/switches.cuh"

namespace flashbook {

template <int kHeadDim>
void run_ablation_07(const Spec& spec, const Tensors& tensors, device::Stream stream, int which) {
  using namespace backward;
  with_causal(spec, [&]<bool kCausal>() {
    const auto run = [&]<template <typename> typename Turned>() {
      run_turned<__nv_bfloat16, kHeadDim, kCausal, Turned>(spec, tensors, stream);
    };
    switch (which) {
      case 1:
        return run.template operator()<AsItIs>();
      case 2:
        return run.template operator()<NoneStay>();
      case 3:
        if constexpr (!kCausal) return run.template operator()<OneStart>();
        break;
      case 4:
        if constexpr (kCausal) return run.template operator()<HeadByHead>();
        break;
      case 5:
        if constexpr (kCausal) return run.template operator()<ShortestFirst>();
        break;
      case 6:
        return run.template operator()<OtherAdder>();
      case 7:
        if constexpr (kHeadDim == 64) return run.template operator()<EarlyDq>();
        break;
    }
  });
}

}  // namespace flashbook
