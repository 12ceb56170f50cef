/// \file
/// Swizzles: layouts of tiles in shared memory that spread a column of 16-byte chunks over all banks.
///
/// In a tile with rows of 32, 64 or 128 bytes, each row stays in place, and its 16-byte chunks are permuted:
/// chunk c of row r is stored in the position of chunk c ^ r. TMA writes and reads tiles this way, and WGMMA
/// and stmatrix must use the same pattern. (PTX ISA, "Swizzling modes" of tensors)
#pragma once
#include "common/device/kernel.h"

namespace flashbook {

/// The span of a swizzle: the number of bytes of a row within which chunks are permuted.
enum class Swizzle { none, b32, b64, b128 };

/// Returns the span in bytes; without a swizzle 16, which is a span of one chunk.
__host__ __device__ constexpr uint32_t swizzle_bytes(Swizzle swizzle) {
  return 16u << static_cast<int>(swizzle);
}

/// Returns the position of the byte that would be at `offset` without a swizzle. The hardware applies the
/// pattern to the bits of the shared address, so offsets are relative to a multiple of 8 spans (1024 bytes is
/// always one): put tiles there. Applying the function twice gives `offset` again.
__host__ __device__ constexpr uint32_t swizzled(Swizzle swizzle, uint32_t offset) {
  // Rows are numbered from address bit 7 on, whatever the span: pairs of 64-byte rows, or groups of four
  // 32-byte rows, share a number but are in different banks anyway.
  return offset ^ (offset >> 3 & (swizzle_bytes(swizzle) - 16));
}

}  // namespace flashbook
