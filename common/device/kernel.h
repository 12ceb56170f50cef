/// \file
/// The header that every kernel file includes: CUDA's language, provided by CUDA or by the simulator.
#pragma once
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#else
#include "common/simulator/cuda.h"
#endif

#include "common/numeric/arithmetic.h"

namespace flashbook {

/// Returns the block's dynamic shared memory as T, aligned to 1024 bytes. The launch sets its size.
template <typename T>
__device__ __forceinline__ T* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ __align__(1024) unsigned char flashbook_dynamic_shared[];
  return reinterpret_cast<T*>(flashbook_dynamic_shared);
#else
  return reinterpret_cast<T*>(sim::dynamic_shared_memory());
#endif
}

}  // namespace flashbook
