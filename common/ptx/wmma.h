/// \file
/// nvcuda::wmma, CUDA's own C++ interface to tensor cores: matrices in fragments with an unspecified layout.
/// Provided by CUDA, or by the simulator, in which the layout changes with the seed (FLASHBOOK_SIM_SEED).
/// (CUDA programming guide, Warp Matrix Functions)
#pragma once
#include "common/ptx/call_site.h"
#include "common/ptx/shared_address.h"

#ifdef __CUDACC__
#include <mma.h>

#include <type_traits>
#else
#include "common/simulator/wmma.h"
#endif

namespace flashbook {

/// Calls nvcuda::wmma::load_matrix_sync for an operand in shared memory. nvcc 13 forgets that a bf16 matrix
/// is in shared memory and loads it through generic addresses, 4 bytes at a time, with an extra instruction
/// for each transposition. If it knows that the memory is shared, it uses ldmatrix, as it does for f16.
/// Preconditions: those of load_matrix_sync, and `matrix` is in shared memory. (PTX ISA, wmma.load)
template <typename Use, typename T, typename Layout>
__device__ __forceinline__ void load_matrix_shared(
    nvcuda::wmma::fragment<Use, 16, 16, 16, T, Layout>& fragment, const T* matrix, unsigned stride,
    [[maybe_unused]] CallSite where = CallSite::current()) {
#ifdef __CUDACC__
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    constexpr bool kIsA = std::is_same_v<Use, nvcuda::wmma::matrix_a>;
    constexpr bool kByRows = std::is_same_v<Layout, nvcuda::wmma::row_major>;
    static_assert(sizeof(fragment.x) == 16, "an operand of bf16 is four registers");
    auto* r = reinterpret_cast<uint32_t*>(fragment.x);  // the same view as in <mma.h> itself
    const uint32_t address = shared_address(matrix);
    if constexpr (kIsA && kByRows)
      asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(address), "r"(stride)
                   : "memory");
    else if constexpr (kIsA)
      asm volatile("wmma.load.a.sync.aligned.col.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(address), "r"(stride)
                   : "memory");
    else if constexpr (kByRows)
      asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(address), "r"(stride)
                   : "memory");
    else
      asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(address), "r"(stride)
                   : "memory");
  } else {
    nvcuda::wmma::load_matrix_sync(fragment, matrix, stride);
  }
#else
  nvcuda::wmma::load_matrix_sync(fragment, matrix, stride, where);
#endif
}

}  // namespace flashbook
