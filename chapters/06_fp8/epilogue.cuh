//| # From sums to results
//|
//| After the last tile of keys a quad adds up its four row sums, the output is divided by them and multiplied by V's scale,
//| and the log-sum-exp follows from maximum and sum. The offset of P is in both: the division takes it out of the output,
//| and the log-sum-exp is less by it.
//|
//| Chapter 5's lanes had to exchange words before they could store 16 bytes each. Here the order of V's columns has done that
//| (`transpose.cuh`): of every 16 columns of the output lane t of a quad holds columns 4t to 4t+3 of its row, 8 bytes in
//| BF16, and the quad stores 32 bytes side by side, a whole sector.
//|
//| ![Chapter 5's lanes exchange words in two rounds before they store; here the order of V's columns spares it](../../docs/figures/quad_transpose.svg)
#pragma once
#include "chapters/06_fp8/softmax.cuh"
#include "chapters/06_fp8/tiles.cuh"
#include "common/ptx/fence.h"

namespace flashbook::fp8 {

/// Divides the output by its rows' sums and stores their log-sum-exp. `query` is the first of the thread's
/// two rows; `v_scale` is 1 with block scales, which P has in it.
template <int kOffset, int kFloats>
__device__ __forceinline__ void finish_rows(float (&output)[kFloats], const Rows& rows,
                                            const Problem& problem,
                                            float* lse,  // [heads, seqlen_q]
                                            Head head, int query, float v_scale) {
  //| The row's maximum is in log2 units and has all scales in it, so it is not multiplied by anything here. The log-sum-
  //| exp loses the offset again.
  constexpr float kLn2 = 0.6931471805599453f;
  float inverse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = quad_sum(rows.sum[r]);
    inverse[r] = sum > 0 ? v_scale / sum : 0;  // a row that sees no key: O = 0
    const int row = query + 8 * r;
    if (threadIdx.x % 4 == 0 && row < problem.seqlen_q)
      lse[int64_t(problem.number(head)) * problem.seqlen_q + row] =
          sum > 0 ? (rows.max[r] + __log2f(sum) - kOffset) * kLn2 : -INFINITY;
  }
  rescale_rows(output, inverse);
}

//| Even columns of V became rows 0 to 7 of 16, odd ones rows 8 to 15. So floats 0 and 4 of a block are neighbouring
//| columns of O, and so are 1 and 5.
/// The thread's four columns, 16 * block + 4 * (lane % 4) and the three after it, of its row r. Floats of
/// even columns of V come before those of odd ones.
template <int kFloats>
__device__ __forceinline__ uint2 four_columns(const float (&output)[kFloats], int block, int r) {
  const int even = 8 * block + 2 * r, odd = even + 4;
  return make_uint2(pack<__nv_bfloat16>(output[even], output[odd]),
                    pack<__nv_bfloat16>(output[even + 1], output[odd + 1]));
}

/// Stores a thread's part of the finished output.
template <int kHeadDim>
__device__ __forceinline__ void store_from_registers(
    const float (&output)[kHeadDim / 2], const Problem& problem,
    __nv_bfloat16* o,  // [batch, heads, seqlen_q, kHeadDim], strided
    Head head, int query) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = query + 8 * r;
    if (row >= problem.seqlen_q) continue;
    auto* target =
        reinterpret_cast<uint2*>(o + problem.o_offset(head, row)) + threadIdx.x % 4;  // 8 bytes each
#pragma unroll
    for (int block = 0; block < kHeadDim / 16; ++block) target[4 * block] = four_columns(output, block, r);
  }
}

//| ## Through shared memory, by TMA
//|
//| The last step writes its output into shared memory, 8 bytes a lane, and a thread of the producer has TMA store it while
//| the warpgroup turns to its next queries.

/// 64 rows of the output, as TMA reads them: panels of 64 columns, 128 bytes.
template <int kHeadDim>
struct alignas(1024) OutputTile {
  static constexpr int kPanel = 64;
  __nv_bfloat16 element[kHeadDim / kPanel][kRowsOfWarpgroup][kPanel];  // pieces of a row exchanged
};

/// Writes the thread's part of the finished output, for TMA to read. `row` is the first of its two rows in
/// the tile.
template <int kHeadDim>
__device__ __forceinline__ void lay_down(OutputTile<kHeadDim>& tile, const float (&output)[kHeadDim / 2],
                                         int row) {
  auto* bytes = reinterpret_cast<unsigned char*>(tile.element);
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int block = 0; block < kHeadDim / 16; ++block) {
      const uint32_t panel = block / 4 * (kRowsOfWarpgroup * 128);
      const uint32_t in_panel = (row + 8 * r) * 128 + block % 4 * 32 + threadIdx.x % 4 * 8;
      *reinterpret_cast<uint2*>(bytes + panel + swizzled(Swizzle::b128, in_panel)) =
          four_columns(output, block, r);
    }
  fence_proxy_async();  // this thread's writes become visible to TMA
}

}  // namespace flashbook::fp8
