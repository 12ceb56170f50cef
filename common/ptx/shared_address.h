/// \file
/// How instructions name a place in shared memory.
#pragma once
#include "common/device/kernel.h"

#ifdef __CUDACC__
namespace flashbook {

/// The place's 32-bit address in the block's shared memory. Precondition: it is there. (PTX ISA, State
/// Spaces)
__device__ __forceinline__ uint32_t shared_address(const void* place) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(place));
}

}  // namespace flashbook
#endif
