#pragma once
#include "chapters/04_flash_attention_2/problem.cuh"
#include "common/ptx/convert.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/math.h"
#include "common/ptx/mma.h"

namespace flashbook::fa2 {

constexpr unsigned kWarp = 0xffffffff;  // all lanes take part
constexpr float kSlack = 8;             // how far, in powers of 2, a score may exceed the maximum in use

/// The place of a row's 16-byte piece in a swizzled tile, in bytes.
template <int kRowBytes>
__device__ __forceinline__ int swizzled(int row, int piece) {
  return row * kRowBytes + (piece ^ row % 8) * 16;
}

/// Two pieces further along the row, `step` times, from a lane's piece 0 or 1.
__device__ __forceinline__ int walk(int offset, int step) {
  return (offset ^ step % 4 * 32) + step / 4 * 128;
}

/// Copies rows of a tile.
template <bool kPartial, int kRows, int kHeadDim, int kThreads, typename T>
__device__ __forceinline__ void copy_tile(unsigned char* tile, const T* rows, int valid_rows) {
  constexpr int kPieces = kHeadDim * int(sizeof(T)) / 16;
  const int row = threadIdx.x / kPieces, piece = threadIdx.x % kPieces;
  const T* source = rows + row * kHeadDim + piece * 8;
#pragma unroll
  for (int i = 0; i < kRows; i += kThreads / kPieces)
    cp_async_cg(tile + swizzled<kHeadDim * sizeof(T)>(row + i, piece), source + i * kHeadDim,
                !kPartial || row + i < valid_rows ? 16 : 0);
}

/// Maximum and sum of a warp's rows.
template <int kRowBlocks>
struct RowState {
  float max[kRowBlocks][2], sum[kRowBlocks][2];
};

template <bool kMasked, int kRowBlocks, int kKeyBlocks, int kDimBlocks>
__device__ __forceinline__ void softmax(float (&scores)[kRowBlocks][kKeyBlocks][4],
                                        float (&out)[kRowBlocks][kDimBlocks][4], RowState<kRowBlocks>& rows,
                                        float scale_log2e) {
  float new_max[kRowBlocks][2];
  bool rises = false;
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = rows.max[r][half];
#pragma unroll
      for (int n = 0; n < kKeyBlocks; ++n)
        top = fmaxf(top, fmaxf(scores[r][n][2 * half], scores[r][n][2 * half + 1]));
      top = fmaxf(top, __shfl_xor_sync(kWarp, top, 1));
      new_max[r][half] = fmaxf(top, __shfl_xor_sync(kWarp, top, 2));
      rises |= (new_max[r][half] - rows.max[r][half]) * scale_log2e > kSlack;
    }
  if (__any_sync(kWarp, rises)) {
#pragma unroll
    for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float correction = exp2_approx((rows.max[r][half] - new_max[r][half]) * scale_log2e);
        if (kMasked && new_max[r][half] == -INFINITY) correction = 1;
        rows.max[r][half] = new_max[r][half];
        rows.sum[r][half] *= correction;
#pragma unroll
        for (int n = 0; n < kDimBlocks; ++n) {
          out[r][n][2 * half] *= correction;
          out[r][n][2 * half + 1] *= correction;
        }
      }
  }
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float offset = -rows.max[r][half] * scale_log2e;
      if (kMasked && rows.max[r][half] == -INFINITY) offset = 0;
#pragma unroll
      for (int n = 0; n < kKeyBlocks; ++n)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[r][n][i] = exp2_approx(fmaf(scores[r][n][i], scale_log2e, offset));
          rows.sum[r][half] += scores[r][n][i];
        }
    }
}

}  // namespace flashbook::fa2
