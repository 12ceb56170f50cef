/// \file
/// Addresses of shared memory in the form that instructions use.
#pragma once
#include "common/device/kernel.h"

#ifdef __CUDACC__
namespace flashbook {

/// Returns the 32-bit address of a place in the block's shared memory. Precondition: `place` is in shared
/// memory. (PTX ISA, State Spaces)
__device__ __forceinline__ uint32_t shared_address(const void* place) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(place));
}

}  // namespace flashbook
#endif
