/// \file
/// From a thread's sums of two rows to results in device memory.
/// chapters/05_flash_attention_3/epilogue.cuh explains it.
#pragma once
#include "common/hopper/rows.h"
#include "common/hopper/tiles.h"
#include "common/ptx/convert.h"
#include "common/ptx/fence.h"
#include "common/ptx/math.h"
#include "common/ptx/stmatrix.h"

namespace flashbook::hopper {

/// Transposes the quad's 4 x 4 matrix of words: word i of lane j and word j of lane i change places.
__device__ __forceinline__ void transpose_in_quad(uint32_t (&word)[4]) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & bit) continue;
      // Of words i and i + bit, a lane with the bit set gives away the first, one without it the second.
      const uint32_t other = __shfl_xor_sync(kWholeWarp, lane & bit ? word[i] : word[i + bit], bit);
      word[i] = lane & bit ? other : word[i];
      word[i + bit] = lane & bit ? word[i + bit] : other;
    }
}

/// Stores a thread's part of the finished output, 16 bytes at a time: of rows `row` and `row` + 8 those below
/// `end`. `o` is row 0, and rows lie `stride` elements apart.
template <typename T, int kHeadDim>
__device__ __forceinline__ void store_from_registers(const float (&output)[kHeadDim / 2], T* o,
                                                     int64_t stride, int row, int end) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    // In pieces of 16 bytes from the row on, which begins at a multiple of 16: a pointer to T, cast where it
    // is stored through, had nvcc store every fourth piece in words.
    auto* target = reinterpret_cast<uint4*>(o + (row + 8 * r) * stride) + threadIdx.x % 4;
#pragma unroll
    for (int column = 0; column < kHeadDim; column += 32) {
      uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = column / 2 + 4 * i + 2 * r;
        word[i] = pack<T>(output[at], output[at + 1]);
      }
      transpose_in_quad(word);  // all lanes, also those of rows beyond the end
      if (row + 8 * r < end) target[column / 8] = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }
}

/// Writes a warp's rows of the finished output, `first_row` to `first_row` + 15 of the tile, for TMA to read.
template <typename T, int kHeadDim>
__device__ __forceinline__ void lay_down(Tile<T, kRowsOfWarpgroup, kHeadDim>& tile,
                                         const float (&output)[kHeadDim / 2], int first_row) {
  // Lanes 0-7 point at rows 0-7, lanes 8-15 at rows 8-15, lanes 16-31 at the same rows, 8 columns on.
  const int lane = threadIdx.x % 32, row = first_row + lane % kRowsOfWarp, right = lane / kRowsOfWarp * 8;
  auto* bytes = reinterpret_cast<unsigned char*>(tile.element);
#pragma unroll
  for (int column = 0; column < kHeadDim; column += 16) {
    const uint32_t panel = column / kPanel * kRowsOfWarpgroup * kPanelRowBytes;
    const uint32_t in_panel = row * kPanelRowBytes + (column % kPanel + right) * 2;
    uint32_t matrices[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      matrices[i] = pack<T>(output[column / 2 + 2 * i], output[column / 2 + 2 * i + 1]);
    stmatrix_x4(bytes + panel + swizzled(Swizzle::b128, in_panel), matrices);
  }
  fence_proxy_async();  // this lane's writes become visible to TMA
}

}  // namespace flashbook::hopper
