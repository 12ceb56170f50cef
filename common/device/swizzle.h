/// \file
/// Swizzles: layouts of tiles in shared memory in which a column of 16-byte chunks is spread over all banks.
///
/// A tile of rows of 32, 64 or 128 bytes keeps its rows in place and exchanges the 16-byte chunks within
/// each: chunk c of row r is where chunk c ^ r would be. TMA writes and reads tiles this way, and WGMMA
/// and stmatrix must use the same pattern. (PTX ISA, "Swizzling modes" of tensors)
#pragma once
#include "common/device/kernel.h"

namespace flashbook {

/// The span of a swizzle: the bytes of a row within which chunks change places.
enum class Swizzle { none, b32, b64, b128 };

/// Returns the bytes of the span; 16 without a swizzle: a span of one chunk.
__host__ __device__ constexpr uint32_t swizzle_bytes(Swizzle swizzle) {
  return 16u << static_cast<int>(swizzle);
}

/// Returns the place of the byte that would be at `offset` without a swizzle. The hardware applies the
/// pattern to the bits of the shared address, so offsets count from a multiple of 8 spans (1024 bytes always
/// do): put tiles there. Exchanging twice gives `offset` again.
__host__ __device__ constexpr uint32_t swizzled(Swizzle swizzle, uint32_t offset) {
  // Rows are numbered from address bit 7 on, whatever the span: pairs of 64-byte rows, or groups of four
  // 32-byte rows, share a number but are in different banks anyway.
  return offset ^ (offset >> 3 & (swizzle_bytes(swizzle) - 16));
}

}  // namespace flashbook
