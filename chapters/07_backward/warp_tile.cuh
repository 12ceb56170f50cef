//| # Products of a warp
//|
//| The building blocks of both steps with `mma.sync`. Chapter 4 explains each: the
//| [swizzle](../04_flash_attention_2/warp_tile.cuh), copies by `cp.async`, and how `mma.sync` distributes its
//| operands over the lanes. A backward pass needs just two kinds of products:
//|
//| * **Rows by rows**, `multiply_rows`: $A B^\top$, summed along the rows of both. $S$, $dP$ and their
//|   transposes are of this kind. Both operands are loaded by plain `ldmatrix`.
//| * **A result by rows**, `multiply_columns`: $A B$, where $A$ is the result of an earlier product in
//|   registers and the sum runs over the rows of $B$. $dQ$, $dK$ and $dV$ are of this kind. B is loaded by
//|   `ldmatrix` with `.trans`, which distributes columns, so no transposed tile is ever stored.
//|
//| ![Which lane holds which elements of the operands and results of
//| mma.sync](../../docs/figures/mma_fragments.svg)
//|
//| The same tile of Q is a right operand of both kinds: its rows for $S^\top = K Q^\top$, its columns for
//| $dK = dS^\top Q$. The same is true of dO, and of K when dQ is computed.
#pragma once
#include "chapters/07_backward/problem.cuh"
#include "common/ptx/convert.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/math.h"
#include "common/ptx/mma.h"

namespace flashbook::backward {

//| ## Tiles
//|
//| A tile in shared memory is swizzled: piece $p$ of 16 bytes of row $r$ is stored where piece
//| $p \oplus (r \bmod 8)$ would be, so that the same piece of eight rows covers all 32 banks. This chapter
//| also has tiles of $dS^\top$ with 32 queries, whose rows have only 64 bytes. Two of these rows cover all
//| banks, so there the exclusive or is with $\lfloor r/2 \rfloor \bmod 4$.
/// Results of mma.sync for kRowBlocks x kColumnBlocks blocks of 16 x 8.
template <int kRowBlocks, int kColumnBlocks>
using Blocks = float[kRowBlocks][kColumnBlocks][4];

/// Returns the offset in bytes of piece `piece` (16 bytes) of row `row` in a swizzled tile. Rows have 64
/// bytes or a multiple of 128; any eight rows' pieces cover all 32 banks.
template <int kRowBytes>
__device__ __forceinline__ int swizzled(int row, int piece) {
  return row * kRowBytes + (piece ^ (kRowBytes == 64 ? row / 2 % 4 : row % 8)) * 16;
}

/// Moves the place of piece 0 or 1 of an aligned group of eight 2 * step pieces further along the row.
__device__ __forceinline__ int walk(int place, int step) { return (place ^ step % 4 * 32) + step / 4 * 128; }

//| Rows may be any distance apart in memory, `stride` elements. Rows past the end become zeros without
//| being read. Stale data would not do, since a probability of 0 times NaN is NaN.
/// Starts copying kRows rows into a swizzled tile; rows from `valid_rows` on become zeros.
template <int kRows, int kHeadDim, int kThreads, typename T>
__device__ __forceinline__ void copy_tile(unsigned char* tile,
                                          const T* rows,  // [valid_rows, kHeadDim], `stride` apart
                                          int64_t stride, int valid_rows) {
  constexpr int kPieces = kHeadDim * int(sizeof(T)) / 16, kRowsAtOnce = kThreads / kPieces;
  static_assert(kRows % kRowsAtOnce == 0, "every thread copies as many pieces");
  const int row = threadIdx.x / kPieces, piece = threadIdx.x % kPieces;
  const T* source = rows + row * stride + piece * 8;
#pragma unroll
  for (int i = 0; i < kRows; i += kRowsAtOnce) {
    cp_async_cg(tile + swizzled<kHeadDim* int(sizeof(T))>(row + i, piece), source,
                row + i < valid_rows ? 16 : 0);
    source += kRowsAtOnce * stride;
  }
}

//| ## Two kinds of products
//|
//| The loop advances along `head_dim` 16 elements at a time. A fragment of B is loaded once and used for
//| every row block of the warp. That is the purpose of a second row block: it halves the shared memory
//| traffic per product.
/// sums = A B^T, summed along the rows of both: A the warp's rows, B kColumnBlocks * 8 rows.
template <typename T, int kHeadDim, int kRowBlocks, int kColumnBlocks>
__device__ __forceinline__ void multiply_rows(Blocks<kRowBlocks, kColumnBlocks>& sums,
                                              const unsigned char* a_rows,    // swizzled, the warp's first
                                              const unsigned char* b_rows) {  // swizzled
  constexpr int kRowBytes = kHeadDim * 2;
  const int lane = threadIdx.x % 32;
  const int a_place = swizzled<kRowBytes>(lane % 16, lane / 16);
  const int b_place = swizzled<kRowBytes>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int n = 0; n < kColumnBlocks; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[r][n][i] = 0;
//| For each 16 elements of the summed dimension: first the warp's fragments of A, then two column blocks of B
//| per `ldmatrix_x4`, and `2 * kRowBlocks` products with each.
#pragma unroll
  for (int step = 0; step < kHeadDim / 16; ++step) {
    uint32_t a[kRowBlocks][4];
#pragma unroll
    for (int r = 0; r < kRowBlocks; ++r) ldmatrix_x4(a[r], a_rows + walk(a_place, step) + r * 16 * kRowBytes);
#pragma unroll
    for (int n = 0; n < kColumnBlocks; n += 2) {
      uint32_t b[4];  // two column blocks, each 16 dims
      ldmatrix_x4(b, b_rows + walk(b_place, step) + n * 8 * kRowBytes);
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r) {
        mma_m16n8k16<T>(sums[r][n], a[r], b[0], b[1], sums[r][n]);
        mma_m16n8k16<T>(sums[r][n + 1], a[r], b[2], b[3], sums[r][n + 1]);
      }
    }
  }
}

//| The second kind takes its left operand from registers. It is called once per 16 rows of B, and adds to its
//| result from tile to tile.
/// sums += A B for 16 rows of B, which are summed over, and kColumnBlocks * 8 of its columns.
template <typename T, int kHeadDim, int kRowBlocks, int kColumnBlocks>
__device__ __forceinline__ void multiply_columns(Blocks<kRowBlocks, kColumnBlocks>& sums,
                                                 const uint32_t (&a)[kRowBlocks][4],
                                                 const unsigned char* b_rows,  // swizzled, the first of 16
                                                 int first_column) {
  const int lane = threadIdx.x % 32, place = swizzled<kHeadDim * 2>(lane % 16, lane / 16);
#pragma unroll
  for (int n = 0; n < kColumnBlocks; n += 2) {
    uint32_t b[4];  // two column blocks, each 16 rows
    ldmatrix_x4_trans(b, b_rows + walk(place, first_column / 16 + n / 2));
#pragma unroll
    for (int r = 0; r < kRowBlocks; ++r) {
      mma_m16n8k16<T>(sums[r][n], a[r], b[0], b[1], sums[r][n]);
      mma_m16n8k16<T>(sums[r][n + 1], a[r], b[2], b[3], sums[r][n + 1]);
    }
  }
}

//| Two blocks of 8 columns of a result, rounded to 16 bits and packed in pairs, are the left operand of the
//| next product, in the same lanes. The chapter's idea rests on this property of `mma.sync`: if rows are
//| keys, the first products yield $P^\top$ and $dS^\top$ exactly as the next two need them.
/// Packs two column blocks of a result, rounded, as the left operand of the next product.
template <typename T, int kRowBlocks, int kColumnBlocks>
__device__ __forceinline__ void round_blocks(uint32_t (&a)[kRowBlocks][4],
                                             const Blocks<kRowBlocks, kColumnBlocks>& sums, int step) {
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r) results_as_a<T>(a[r], sums[r][2 * step], sums[r][2 * step + 1]);
}

//| ## Storing results
//|
//| A result is stored through shared memory: first to its own part of a tile, swizzled, then as whole lines
//| to device memory. `write_blocks` also passes $dS^\top$ to the other warps.
/// Writes a result, rounded and multiplied by `factor`, into a swizzled tile at the warp's first row and
/// first column.
template <typename T, int kRowBytes, int kRowBlocks, int kColumnBlocks>
__device__ __forceinline__ void write_blocks(unsigned char* tile,
                                             const Blocks<kRowBlocks, kColumnBlocks>& sums, int first_row,
                                             int first_column, float factor = 1) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < kColumnBlocks; ++n) {
        const int place = swizzled<kRowBytes>(first_row + r * 16 + half * 8 + lane / 4, first_column / 8 + n);
        *reinterpret_cast<uint32_t*>(tile + place + lane % 4 * 4) =
            pack<T>(sums[r][n][2 * half] * factor, sums[r][n][2 * half + 1] * factor);
      }
}

//| Between writing and reading a `__syncwarp` is enough, because no other warp touches these rows. The caller
//| makes sure that the tile is free.
/// Stores a warp's result through its own part of a swizzled tile, so that whole lines are stored, 16 bytes
/// per lane. Precondition: no other warp uses this part of the tile any more.
template <typename T, int kHeadDim, int kRowBlocks, int kColumnBlocks>
__device__ __forceinline__ void store_blocks(const Blocks<kRowBlocks, kColumnBlocks>& sums, float factor,
                                             unsigned char* tile, int first_row, int first_column,
                                             T* rows,  // [valid_rows, kHeadDim], `stride` apart
                                             int64_t stride, int valid_rows) {
  constexpr int kRowBytes = kHeadDim * 2, kPieces = kColumnBlocks;  // 8 columns are 16 bytes
  const int lane = threadIdx.x % 32, first_piece = first_column / 8;
  __syncwarp();  // the warp's last reads of these rows are done
  write_blocks<T, kRowBytes>(tile, sums, first_row, first_column, factor);
  //| Now the lanes change roles: lane $i$ takes the $i$-th piece of 16 bytes of the warp's rows, whichever
  //| lane wrote it.
  __syncwarp();  // the rows are complete before other lanes read them
#pragma unroll
  for (int i = 0; i < kRowBlocks * 16 * kPieces; i += 32) {
    const int row = first_row + (i + lane) / kPieces, piece = first_piece + (i + lane) % kPieces;
    if (row < valid_rows)
      reinterpret_cast<uint4*>(rows + row * stride)[piece] =
          *reinterpret_cast<const uint4*>(tile + swizzled<kRowBytes>(row, piece));
  }
}

}  // namespace flashbook::backward
