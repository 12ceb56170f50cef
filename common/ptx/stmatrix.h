/// \file
/// stmatrix: 8x8 matrices of 16-bit elements from the registers of a warp into shared memory; what ldmatrix.h
/// loads, the other way. Needs Hopper (sm_90).
///
/// Each register holds two elements of one matrix. Lane l gives elements 2 * (l % 4) (low half) and 2 * (l %
/// 4) + 1 (high half) of row l / 4; with `_trans` of column l / 4.
///
/// Preconditions of all: the whole warp executes the same one; `row`, the lane's row, is 16 bytes in shared
/// memory, 16-byte aligned; no two rows overlap. Lanes that give no row may pass anything. (PTX ISA,
/// stmatrix)
#pragma once
#include "common/ptx/call_site.h"
#include "common/ptx/shared_address.h"

namespace flashbook {

/// Whether the GPU that is compiled for has stmatrix. A kernel for older ones too asks with `if constexpr`.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool kHasStmatrix = false;
#else
constexpr bool kHasStmatrix = true;
#endif

/// Stores one matrix: lanes 0 to 7 give its rows.
template <bool kAvailable = kHasStmatrix>
__device__ __forceinline__ void stmatrix_x1(void* row, const uint32_t (&registers)[1],
                                            [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(kAvailable, "stmatrix needs sm_90: compile this kernel for Hopper only, or ask kHasStmatrix");
#ifdef __CUDACC__
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};"
               :
               : "r"(shared_address(row)), "r"(registers[0])
               : "memory");
#else
  sim::stmatrix(row, registers, 1, false, where);
#endif
}

/// Stores two matrices: lanes 0 to 7 give the rows of the first, 8 to 15 of the second.
template <bool kAvailable = kHasStmatrix>
__device__ __forceinline__ void stmatrix_x2(void* row, const uint32_t (&registers)[2],
                                            [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(kAvailable, "stmatrix needs sm_90: compile this kernel for Hopper only, or ask kHasStmatrix");
#ifdef __CUDACC__
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"
               :
               : "r"(shared_address(row)), "r"(registers[0]), "r"(registers[1])
               : "memory");
#else
  sim::stmatrix(row, registers, 2, false, where);
#endif
}

/// Stores four matrices: lanes 8 * m to 8 * m + 7 give the rows of matrix m.
template <bool kAvailable = kHasStmatrix>
__device__ __forceinline__ void stmatrix_x4(void* row, const uint32_t (&registers)[4],
                                            [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(kAvailable, "stmatrix needs sm_90: compile this kernel for Hopper only, or ask kHasStmatrix");
#ifdef __CUDACC__
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(shared_address(row)), "r"(registers[0]), "r"(registers[1]), "r"(registers[2]),
                 "r"(registers[3])
               : "memory");
#else
  sim::stmatrix(row, registers, 4, false, where);
#endif
}

/// Stores one matrix transposed: lanes 0 to 7 give its rows.
template <bool kAvailable = kHasStmatrix>
__device__ __forceinline__ void stmatrix_x1_trans(void* row, const uint32_t (&registers)[1],
                                                  [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(kAvailable, "stmatrix needs sm_90: compile this kernel for Hopper only, or ask kHasStmatrix");
#ifdef __CUDACC__
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};"
               :
               : "r"(shared_address(row)), "r"(registers[0])
               : "memory");
#else
  sim::stmatrix(row, registers, 1, true, where);
#endif
}

/// Stores two matrices transposed: lanes 0 to 7 give the rows of the first, 8 to 15 of the second.
template <bool kAvailable = kHasStmatrix>
__device__ __forceinline__ void stmatrix_x2_trans(void* row, const uint32_t (&registers)[2],
                                                  [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(kAvailable, "stmatrix needs sm_90: compile this kernel for Hopper only, or ask kHasStmatrix");
#ifdef __CUDACC__
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
               :
               : "r"(shared_address(row)), "r"(registers[0]), "r"(registers[1])
               : "memory");
#else
  sim::stmatrix(row, registers, 2, true, where);
#endif
}

/// Stores four matrices transposed: lanes 8 * m to 8 * m + 7 give the rows of matrix m.
template <bool kAvailable = kHasStmatrix>
__device__ __forceinline__ void stmatrix_x4_trans(void* row, const uint32_t (&registers)[4],
                                                  [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(kAvailable, "stmatrix needs sm_90: compile this kernel for Hopper only, or ask kHasStmatrix");
#ifdef __CUDACC__
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(shared_address(row)), "r"(registers[0]), "r"(registers[1]), "r"(registers[2]),
                 "r"(registers[3])
               : "memory");
#else
  sim::stmatrix(row, registers, 4, true, where);
#endif
}

}  // namespace flashbook
