/// \file
/// The positions of matrix elements in registers and in shared memory that wgmma expects, for kernels' masks,
/// drawings and tests.
///
/// **Registers.** Warp w of the warpgroup has rows 16 * w to 16 * w + 15. Lane l is thread t = l % 4 of group
/// g = l / 4, and holds these elements of its warp's rows:
///
///     d          floats 4j .. 4j+3: rows g, g, g + 8, g + 8; columns 8j + 2t, 8j + 2t + 1, and these again
///     a, 16 bit  registers 0 1 2 3: rows g, g + 8, g, g + 8; columns 2t, 2t + 1 in registers 0 and 1,
///                8 more in 2 and 3
///     a, e4m3    registers 0 1 2 3: the same rows; columns 4t .. 4t + 3 in registers 0 and 1,
///                16 more in 2 and 3
///
/// So 16 columns of d, rounded to 16 bits, can serve directly as a of the next product; rounded to e4m3 they
/// cannot. (PTX ISA, Register Fragments for wgmma.mma_async)
///
/// **Shared memory.** A matrix consists of *core matrices*, 8 lines of 16 bytes. A line follows k in a
/// K-major operand (element (row, k) and then (row, k + 1)), and rows m or n in an MN-major one. With a
/// swizzle, 2, 4 or 8 adjacent core matrices are next to each other in an *atom*: 8 lines of 32, 64 or 128
/// bytes, and the positions of a line's 16-byte pieces depend on the line's number. A descriptor's two
/// distances lead to the next core matrix, or atom:
///
///     leading_bytes  K-major: along k (no swizzle only)
///                    MN-major: along rows; without swizzle along k
///     stride_bytes   K-major: along rows, the next 8
///                    MN-major: along k, the next 8; without swizzle along rows
///
/// (PTX ISA, Shared Memory Matrix Layout; CuTe's mma_traits_sm90_gmma.hpp)
#pragma once
#include <cstdint>

#include "common/device/swizzle.h"
#include "common/ptx/mma.h"

namespace flashbook {

/// The direction of a line of an operand in shared memory.
enum class Major {
  k,  ///< along k: a row of Q or K, where k is the head dimension
  mn  ///< along rows m of a or columns n of b: a row of V, where k is the key
};

/// How wgmma distributes the elements of its register operands to the 128 threads of a warpgroup.
template <int kN>
struct WgmmaM64 {
  static constexpr int kFloatsD = kN / 2;  ///< floats of d per thread
  static constexpr int kElementsA16 = 8;   ///< 16-bit elements of a per thread
  static constexpr int kElementsA8 = 16;   ///< e4m3 elements of a per thread

  /// Returns the position of float i of a thread's part of d.
  __host__ __device__ static constexpr MatrixPlace d(int thread, int i) {
    return {row(thread, i / 2), i / 4 * 8 + thread % 4 * 2 + i % 2};
  }
  /// Returns the position of element i of a thread's part of a 16-bit a, which is in register i / 2.
  __host__ __device__ static constexpr MatrixPlace a16(int thread, int i) {
    return {row(thread, i / 2), i / 4 * 8 + thread % 4 * 2 + i % 2};
  }
  /// Returns the position of element i of a thread's part of an e4m3 a, which is in register i / 4.
  __host__ __device__ static constexpr MatrixPlace a8(int thread, int i) {
    return {row(thread, i / 4), i / 8 * 16 + thread % 4 * 4 + i % 4};
  }

 private:
  /// Returns the row of a part: a lane alternates between its group of 8 rows and the next group.
  __host__ __device__ static constexpr int row(int thread, int part) {
    return thread / 32 * 16 + thread % 32 / 4 + part % 2 * 8;
  }
};

/// The layout of a matrix in shared memory, as in a descriptor, in bytes.
struct WgmmaTile {
  Swizzle swizzle;
  Major major;
  int element_bytes;  ///< 2, or 1 for e4m3
  uint32_t leading_bytes, stride_bytes;

  /// Returns the offset in bytes of element (row, k) from the descriptor's address, at which an atom begins.
  /// `row` counts m of a or n of b.
  __host__ __device__ constexpr uint32_t offset(int row, int k) const {
    const bool k_major = major == Major::k;
    // A line runs `along` one dimension, and the next line is one further `across`.
    const auto along = uint32_t((k_major ? k : row) * element_bytes);
    const auto across = uint32_t(k_major ? row : k);
    const uint32_t line_bytes = swizzle_bytes(swizzle);  // of an atom, or of a core matrix without swizzle
    const uint32_t piece = along / line_bytes, group = across / 8;
    // Without a swizzle, the two distances of an MN-major tile are exchanged.
    const bool exchanged = !k_major && swizzle == Swizzle::none;
    const uint32_t linear = piece * (exchanged ? stride_bytes : leading_bytes) +
                            group * (exchanged ? leading_bytes : stride_bytes) + across % 8 * line_bytes +
                            along % line_bytes;
    return swizzled(swizzle, linear);
  }
};

}  // namespace flashbook
