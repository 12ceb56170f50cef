/// \file
/// mma.sync: a warp multiplies two small matrices held in its registers, on a tensor core.
///
/// d = a * b + c with a 16x16 (rows m, columns k), b 16x8 (rows k, columns n), c and d 16x8. Every lane holds
/// 8 elements of a, 4 of b, and 4 of c and d. Lane l is thread t = l % 4 of group g = l / 4:
///
///     a  registers 0 1 2 3: rows g, g + 8, g, g + 8; columns 2t, 2t + 1 in 0 and 1, 8 more in 2 and 3
///     b  registers 0 1:     column g; rows 2t, 2t + 1 in 0, 8 more in 1
///     c  floats 0 1 2 3:    row g in 0 and 1, g + 8 in 2 and 3; columns 2t, 2t + 1
///
/// A register of a or b holds two elements, the first in its low half. So c of one product, rounded to 16
/// bits, is half of the next product's a.
#pragma once
#include <type_traits>

#include "common/ptx/call_site.h"
#include "common/ptx/convert.h"

namespace flashbook {

/// The position of an element in its matrix.
struct MatrixPlace {
  int row, column;
  friend constexpr bool operator==(const MatrixPlace&, const MatrixPlace&) = default;
};

/// How mma_m16n8k16 distributes elements, for drawings, masks and tests.
struct MmaM16N8K16 {
  static constexpr int kElementsA = 8, kElementsB = 4, kElementsC = 4;  ///< elements per lane

  /// Returns the position of element 0 to 7 of a lane's part of a, which is in register element / 2.
  __host__ __device__ static constexpr MatrixPlace a(int lane, int element) {
    return {lane / 4 + element / 2 % 2 * 8, lane % 4 * 2 + element % 2 + element / 4 * 8};
  }
  /// Returns the position of element 0 to 3 of a lane's part of b, which is in register element / 2.
  __host__ __device__ static constexpr MatrixPlace b(int lane, int element) {
    return {lane % 4 * 2 + element % 2 + element / 2 * 8, lane / 4};
  }
  /// Returns the position of float 0 to 3 of a lane's part of c or d.
  __host__ __device__ static constexpr MatrixPlace c(int lane, int element) {
    return {lane / 4 + element / 2 * 8, lane % 4 * 2 + element % 2};
  }
};

/// Computes d = a * b + c for elements of type T, `__half` or `__nv_bfloat16`, with float sums; d may be c.
/// Precondition: the whole warp executes it. Tensor cores truncate sums, whereas the simulator rounds them,
/// unless FLASHBOOK_SIM_EXACT=1 is set. (PTX ISA, mma.sync.aligned.m16n8k16.row.col)
template <typename T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                             const float (&c)[4],
                                             [[maybe_unused]] CallSite where = CallSite::current()) {
  static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>,
                "this product takes __half or __nv_bfloat16");
#ifdef __CUDACC__
  if constexpr (std::is_same_v<T, __half>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]),
          "f"(c[3]));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]),
          "f"(c[3]));
#else
  const uint32_t b[2] = {b0, b1};
  sim::mma_m16n8k16(std::is_same_v<T, __half> ? DType::f16 : DType::bf16, d, a, b, c, where);
#endif
}

/// Returns two products for adjacent blocks of 8 columns, rounded to T, as `a` of the next product.
template <typename T>
__device__ __forceinline__ void results_as_a(uint32_t (&a)[4], const float (&left)[4],
                                             const float (&right)[4]) {
  a[0] = pack<T>(left[0], left[1]);
  a[1] = pack<T>(left[2], left[3]);
  a[2] = pack<T>(right[0], right[1]);
  a[3] = pack<T>(right[2], right[3]);
}

}  // namespace flashbook
