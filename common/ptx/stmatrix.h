/// \file
/// stmatrix: stores 8x8 matrices of 16-bit elements from the registers of a warp to shared memory, the
/// reverse of ldmatrix.h. Needs Hopper (sm_90).
///
/// Each register holds two elements of one matrix. Lane l provides elements 2 * (l % 4) (low half) and 2 * (l
/// % 4) + 1 (high half) of row l / 4; with `_trans`, of column l / 4.
///
/// Preconditions of all functions: the whole warp executes the same one; `row`, the lane's
/// row, is 16 bytes in shared memory, 16-byte aligned; no two rows overlap. (PTX ISA,
/// stmatrix)
#pragma once
#include "common/ptx/call_site.h"
#include "common/ptx/shared_address.h"

namespace flashbook {

/// Whether the target GPU has stmatrix. A kernel that also supports older GPUs tests it with `if constexpr`.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool kHasStmatrix = false;
#else
constexpr bool kHasStmatrix = true;
#endif

/// Stores four matrices: lanes 8 * m to 8 * m + 7 give the rows of matrix m.
template <bool kAvailable = kHasStmatrix>
__device__ __forceinline__ void stmatrix_x4(void* row, const uint32_t (&registers)[4],
                                            [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(kAvailable,
                "stmatrix needs sm_90: compile this kernel for Hopper only, or test kHasStmatrix");
#ifdef __CUDACC__
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(shared_address(row)), "r"(registers[0]), "r"(registers[1]), "r"(registers[2]),
                 "r"(registers[3])
               : "memory");
#else
  sim::stmatrix(row, registers, false, where);
#endif
}

/// Stores four matrices transposed: lanes 8 * m to 8 * m + 7 give the rows of matrix m.
template <bool kAvailable = kHasStmatrix>
__device__ __forceinline__ void stmatrix_x4_trans(void* row, const uint32_t (&registers)[4],
                                                  [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(kAvailable,
                "stmatrix needs sm_90: compile this kernel for Hopper only, or test kHasStmatrix");
#ifdef __CUDACC__
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(shared_address(row)), "r"(registers[0]), "r"(registers[1]), "r"(registers[2]),
                 "r"(registers[3])
               : "memory");
#else
  sim::stmatrix(row, registers, true, where);
#endif
}

}  // namespace flashbook
