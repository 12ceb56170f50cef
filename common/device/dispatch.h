/// \file
/// Maps the run-time values of a Spec to a kernel's template arguments.
#pragma once
#include <stdexcept>
#include <string>

#include "common/device/kernel.h"
#include "common/numeric/dtype.h"

namespace flashbook::device {

/// Returns the error that reports that there is no kernel for `what`. In a quick program, which has only the
/// kernels of a run without options, its message explains how to build all kernels.
inline std::logic_error no_kernel(const std::string& what) {
#ifdef FLASHBOOK_ONLY_HEAD_DIM
  return std::logic_error("this program has no kernel for " + what +
                          ": ./flashbook run with the option builds one that has");
#else
  return std::logic_error("no kernel takes " + what + " here");
#endif
}

/// Calls `body.operator()<T>()` with the kernel's type for `dtype`: float, __half or __nv_bfloat16. A build
/// with FLASHBOOK_WITHOUT_F16 has no kernels for f16.
template <typename Body>
void with_type(DType dtype, Body body) {
  switch (dtype) {
    case DType::f32:
      return body.template operator()<float>();
    case DType::bf16:
      return body.template operator()<__nv_bfloat16>();
#ifndef FLASHBOOK_WITHOUT_F16
    case DType::f16:
      return body.template operator()<__half>();
#endif
    default:
      break;
  }
  throw no_kernel(std::string(name_of(dtype)));
}

/// Calls `body` with the element type of a kernel that supports only f16 and bf16.
template <typename Body>
void with_16_bit_type(DType dtype, Body body) {
  with_type(dtype, [&]<typename T>() {
    if constexpr (sizeof(T) == 2)
      body.template operator()<T>();
    else
      throw no_kernel("f32");
  });
}

/// Whether this program has kernels for all head dimensions.
#ifdef FLASHBOOK_ONLY_HEAD_DIM
constexpr bool kHasAllHeadDims = false;
#else
constexpr bool kHasAllHeadDims = true;
#endif

/// Calls `body.operator()<kHeadDim>()` with `head_dim` as a constant: 64, 128 or 256. A build with
/// FLASHBOOK_ONLY_HEAD_DIM=64 or 128 has no kernels for other head dimensions, and one with
/// FLASHBOOK_WITHOUT_HEAD_DIM_256 has none for 256.
template <typename Body>
void with_head_dim(int head_dim, Body body) {
  switch (head_dim) {
#ifdef FLASHBOOK_ONLY_HEAD_DIM
    case FLASHBOOK_ONLY_HEAD_DIM:
      return body.template operator()<FLASHBOOK_ONLY_HEAD_DIM>();
#else
    case 64:
      return body.template operator()<64>();
    case 128:
      return body.template operator()<128>();
#ifndef FLASHBOOK_WITHOUT_HEAD_DIM_256
    case 256:
      return body.template operator()<256>();
#endif
#endif
  }
  throw no_kernel("head_dim " + std::to_string(head_dim));
}

/// Does both: calls `body.operator()<T, kHeadDim>()` for a 16-bit type.
template <typename Body>
void with_16_bit_type_and_head_dim(DType dtype, int head_dim, Body body) {
  with_16_bit_type(dtype, [&]<typename T>() {
    with_head_dim(head_dim, [&]<int kHeadDim>() { body.template operator()<T, kHeadDim>(); });
  });
}

}  // namespace flashbook::device
