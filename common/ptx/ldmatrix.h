/// \file
/// ldmatrix: loads 8x8 matrices of 16-bit elements from shared memory into the registers of a warp, in the
/// layout that mma.h expects.
///
/// Each register holds two elements of one matrix. Lane l receives elements 2 * (l % 4) (low half) and 2 * (l
/// % 4) + 1 (high half) of row l / 4; with `_trans`, of column l / 4. Rows may be anywhere; if eight of them
/// are in the same banks, the load takes eight times as long.
///
/// Preconditions of all functions: the whole warp executes the same one; `row`, the lane's row, is 16 bytes
/// in shared memory, 16-byte aligned. (PTX ISA, ldmatrix)
#pragma once
#include "common/ptx/call_site.h"
#include "common/ptx/shared_address.h"

namespace flashbook {

/// Loads four matrices: lanes 8 * m to 8 * m + 7 give the rows of matrix m.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&registers)[4], const void* row,
                                            [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared_address(row))
               : "memory");
#else
  sim::ldmatrix(registers, false, row, where);
#endif
}

/// Loads four matrices transposed: lanes 8 * m to 8 * m + 7 give the rows of matrix m.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&registers)[4], const void* row,
                                                  [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(shared_address(row))
               : "memory");
#else
  sim::ldmatrix(registers, true, row, where);
#endif
}

}  // namespace flashbook
