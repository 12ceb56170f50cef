//| # From sums to results
//|
//| After the last product, a thread holds parts of the sums of two rows. The quad adds its four partial row
//| sums, the output is divided by the totals, and the log-sum-exp follows from maximum and sum. The output is
//| stored either straight from the registers or through shared memory and TMA.
//|
//| ![The four lanes of a quad exchange words in two rounds; then each has 16 contiguous
//| bytes](../../docs/figures/quad_transpose.svg)
#pragma once
#include "common/hopper/pingpong.h"
#include "common/hopper/pipeline.h"
#include "common/hopper/softmax.h"
#include "common/hopper/tiles.h"
#include "common/ptx/fence.h"
#include "common/ptx/stmatrix.h"

namespace flashbook::hopper {

//| ## The last product
//|
//| A loop that issues a tile's scores before the previous tile's P V leaves one P V for the end.
/// Issues the P V product of the loop's last tile, in turn, and releases the tile's stage. `values` is the
/// descriptor of stage 0 as V.
template <typename T, typename Traits, int kFloats, int kFragments, typename Pipeline, typename State>
__device__ __forceinline__ void last_values(float (&output)[kFloats], uint32_t (&p)[kFragments][4],
                                            uint64_t values, Pipeline& pipeline, State& state, int consumer) {
  wait_full(pipeline, state);
  take_turn<Traits>(consumer);
  wgmma_pin(output);
  wgmma_pin(p);
  wgmma_fence();
  issue_accumulate<T>(output, p, wgmma_advance(values, state.stage * sizeof(pipeline.tile[0])));
  pass_turn<Traits>(consumer);
  wgmma_wait<0>();
  wgmma_pin(output);
  wgmma_pin(p);
  release(pipeline, state);
  state.advance();
}

//| ## Rows
//|
//| Both the sums and O are relative to the maximum in use, so the maximum cancels in the quotient. The
//| log-sum-exp adds it back: log2 of the sum, plus the scaled maximum, times ln 2, which converts to the
//| natural logarithm.
/// Returns the log-sum-exp of a row, from its maximum in units of log2 and the sum relative to it.
__device__ __forceinline__ float log_sum_exp(float max_log2, float sum) {
  return sum > 0 ? (max_log2 + __log2f(sum)) * kLn2 : -INFINITY;
}

//| All four lanes of the quad have the row's sum, and one of them stores the log-sum-exp.
/// Divides the output by its rows' sums and stores their log-sum-exp. `query` is the first of the thread's
/// two rows; `head` indexes batch and heads together.
template <int kFloats>
__device__ __forceinline__ void finish_rows(float (&output)[kFloats], const Rows& rows,
                                            const Problem& problem,
                                            float* lse,  // [heads, seqlen_q]
                                            int head, int query) {
  float inverse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = quad_sum(rows.sum[r]);
    inverse[r] = sum > 0 ? 1 / sum : 0;  // a row that sees no key: O = 0
    const int row = query + 8 * r;
    if (threadIdx.x % 4 == 0 && row < problem.seqlen_q)
      lse[int64_t(head) * problem.seqlen_q + row] = log_sum_exp(rows.max[r] * problem.scale_log2, sum);
  }
  rescale_rows(output, inverse);
}

//| ## Straight from the registers
//|
//| A lane holds two neighbouring columns of every 8: stored as they are, a quad would write 16 bytes here and
//| 16 there. So the four lanes first exchange. In 32 columns a lane holds one pair in each of four groups of
//| 8; afterwards it holds all four pairs of one group, 16 contiguous bytes, and the quad writes 64. This
//| transposes a 4 x 4 matrix in two rounds: first with the neighbour, then with the lane at distance two.

/// Transposes the quad's 4 x 4 matrix of words: swaps word i of lane j with word j of lane i.
__device__ __forceinline__ void transpose_in_quad(uint32_t (&word)[4]) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & bit) continue;
      // A lane with the bit set sends word i; a lane without it sends word i + bit.
      const uint32_t other = __shfl_xor_sync(kWholeWarp, lane & bit ? word[i] : word[i + bit], bit);
      word[i] = lane & bit ? other : word[i];
      word[i + bit] = lane & bit ? word[i + bit] : other;
    }
}

//| Rows past the end take part in the exchange, since a shuffle needs all lanes, but are not stored. This is
//| where outputs are first rounded to T, in pairs. A padded head dimension ends between two 16-byte pieces,
//| since it is a multiple of 8, and pieces beyond its end are not stored either.
/// Stores a thread's part of 64 finished rows, times `factor`, 16 bytes at a time: rows `row` and `row` + 8
/// if they are below `end`, and their first `columns` columns. `row_at(row)` is the address of a row.
template <typename T, int kFloats, typename RowAt>
__device__ __forceinline__ void store_from_registers(const float (&output)[kFloats], int row, int end,
                                                     const RowAt& row_at, float factor = 1.0f,
                                                     int columns = 2 * kFloats) {
  //| In every 32 columns, the second thread of a quad stores columns from 8 on, the third from 16, the fourth
  //| from 24. So each counts the remaining columns from its own first one.
  const int thread_columns = columns - 8 * int(threadIdx.x % 4);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    // Stores 16-byte pieces relative to the start of the row, which is 16-byte aligned. With a T* cast only
    // at the store, nvcc split every fourth 16-byte store into 4-byte ones.
    auto* target = reinterpret_cast<uint4*>(row_at(row + 8 * r)) + threadIdx.x % 4;
#pragma unroll
    for (int column = 0; column < 2 * kFloats; column += 32) {
      uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = column / 2 + 4 * i + 2 * r;
        word[i] = pack<T>(factor * output[at], factor * output[at + 1]);
      }
      transpose_in_quad(word);  // all lanes, including those of rows past the end
      if (row + 8 * r < end && column < thread_columns)
        target[column / 8] = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }
}

//| Chapter 5's steps obtain the address of each of their two rows from the problem. Chapters 7 and 9 have a
//| pointer to the first row of a tile and one stride.
/// Stores a thread's part of 64 finished rows, which are `stride` elements apart; row 0 is at `to`.
template <typename T, int kFloats>
__device__ __forceinline__ void store_from_registers(const float (&output)[kFloats], T* to, int64_t stride,
                                                     int row, int end, float factor = 1.0f,
                                                     int columns = 2 * kFloats) {
  store_from_registers<T>(
      output, row, end, [&](int at) { return to + at * stride; }, factor, columns);
}

//| ## Through shared memory, by TMA
//|
//| `stmatrix` fits this layout: it takes four 8 x 8 matrices as an accumulator holds them and writes each of
//| their rows as 16 bytes. The swizzle keeps those rows in different banks, and TMA undoes it. TMA does not
//| write rows past the end either. A warp only writes its 16 rows into the warpgroup's tile. A producer
//| thread then has TMA store the tile, while the warp works on its next queries.

/// Writes a warp's rows of the finished output, `first_row` to `first_row` + 15 of the tile, for TMA to read.
template <typename T, int kHeadDim>
__device__ __forceinline__ void store_to_smem(Tile<T, kRowsPerWarpgroup, kHeadDim>& tile,
                                              const float (&output)[kHeadDim / 2], int first_row) {
  //| Each lane supplies the address of one row of one of the four matrices, where TMA will read it: panel,
  //| row, piece, with the swizzle on top. Each iteration of the loop stores 16 columns: two adjacent matrices
  //| for each of two groups of 8 rows.
  // Lanes 0-7 address rows 0-7, lanes 8-15 rows 8-15; lanes 16-31 the same rows, 8 columns further.
  const int lane = threadIdx.x % 32, row = first_row + lane % kRowsPerWarp, right = lane / kRowsPerWarp * 8;
  auto* bytes = reinterpret_cast<unsigned char*>(tile.element);
#pragma unroll
  for (int column = 0; column < kHeadDim; column += 16) {
    const uint32_t panel = column / kPanel * kRowsPerWarpgroup * kPanelRowBytes;
    const uint32_t in_panel = row * kPanelRowBytes + (column % kPanel + right) * 2;
    uint32_t matrices[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      matrices[i] = pack<T>(output[column / 2 + 2 * i], output[column / 2 + 2 * i + 1]);
    stmatrix_x4(bytes + panel + swizzled(Swizzle::b128, in_panel), matrices);
  }
  //| TMA reads through the *async proxy*, a different path from that of the threads' writes. Without this
  //| fence, TMA may read old data.
  fence_proxy_async();  // this lane's writes become visible to TMA
}

}  // namespace flashbook::hopper
