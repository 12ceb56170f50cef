//| # V, transposed
//|
//| V is stored with the head dimension along its rows, but `wgmma` sums along rows. In 16 bits a flag of
//| `wgmma` selects the other direction; in 8 bits there is none. So two dedicated warps transpose V in shared
//| memory, tile by tile: TMA loads it unchanged, the warps write it transposed into another pipeline, and
//| consumers multiply from there.
//|
//| Each row of the transposed tile is a column of V. The order of rows is arbitrary, like that of the keys:
//|
//| | | | |
//| | --- | --- | --- |
//| | along a row, of every 16 keys | 0 1 8 9  2 3 10 11  4 5 12 13  6 7 14 15 | P's order (`tiles.cuh`) |
//| | down the rows, of every 16 columns | 0 2 4 6 8 10 12 14, then 1 3 5 7 9 11 13 15 | see step 2 |
//|
//| ![The scores of 16 keys and the threads that hold them; the places of P; the order of the keys that
//| follows](../../docs/figures/fp8_keys.svg)
#pragma once
#include "chapters/06_fp8/tiles.cuh"
#include "common/ptx/fence.h"
#include "common/ptx/math.h"
#include "common/ptx/stmatrix.h"

namespace flashbook::fp8 {

constexpr int kTransposers = 2;  ///< warps

/// Returns the key, of 16, at place `i` of a row of the transposed tile.
__host__ __device__ constexpr int key_at(int i) { return i / 4 * 2 + i % 2 + i / 2 % 2 * 8; }

/// Returns the column of V, of 16, in row `i` of the transposed tile.
__host__ __device__ constexpr int column_at(int i) { return i % 8 * 2 + i / 8; }

//| ## Step 1: byte by byte
//|
//| A thread gathers the 16 bytes of a row from 16 rows of V and writes them at once. 32 threads read 32
//| neighbouring bytes, which span 8 banks, so there are no conflicts; but each instruction moves only one
//| byte per thread instead of four.

/// Writes v transposed to `transposed`. `warp` is one of kTransposers.
template <int kKeys, int kHeadDim>
__device__ __forceinline__ void transpose_bytes(Tile<kHeadDim, kKeys>& transposed, Tile<kKeys, kHeadDim>& v,
                                                int warp) {
  for (int i = warp * 32 + threadIdx.x % 32; i < kHeadDim * (kKeys / 16); i += kTransposers * 32) {
    const int row = i % kHeadDim, first_key = i / kHeadDim * 16;
    const int column = row / 16 * 16 + column_at(row % 16);
    uint32_t word[4] = {};
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const unsigned char* piece = v.piece(first_key + key_at(j), column / 16 * 16);
      word[j / 4] |= uint32_t(piece[column % 16]) << j % 4 * 8;
    }
    *reinterpret_cast<uint4*>(transposed.piece(row, first_key)) =
        make_uint4(word[0], word[1], word[2], word[3]);
  }
}

//| ## Step 2: by matrices
//|
//| `ldmatrix` with `.trans` transposes 8 x 8 elements of 16 bits. It treats two neighbouring bytes of a row
//| of V as one element, so it moves pairs without changing their order inside. Lane 4c + t then holds these
//| bytes of columns 2c and 2c+1:
//|
//| | register | byte 0 | byte 1 | byte 2 | byte 3 |
//| | --- | --- | --- | --- | --- |
//| | keys 0-7 | key 2t, column 2c | key 2t, column 2c+1 | key 2t+1, column 2c | key 2t+1, column 2c+1 |
//| | keys 8-15 | key 2t+8, column 2c | key 2t+8, column 2c+1 | key 2t+9, column 2c | key 2t+9, column 2c+1 |
//|
//| Two byte permutations correct this: bytes 0 and 2 of both registers are column 2c, bytes 1 and 3 are
//| column 2c+1. Each result has keys 2t, 2t+1, 2t+8, 2t+9, which is exactly the order of P. `stmatrix` writes
//| them to shared memory: four lanes make a row of 16 keys of one column, and eight quads make eight rows.
//|
//| This determines the order of the columns. One `stmatrix` matrix holds columns 0, 2, 4 to 14. If they
//| became rows 0, 2, 4 to 14 of the tile, the swizzle, which depends on the row modulo 8, would put every two
//| of them in the same banks. So they become rows 0 to 7, and the odd columns rows 8 to 15. The output then
//| has its columns in that order, which suits the epilogue: a thread holds four neighbours (`epilogue.cuh`).
//|
//| A block of 32 keys and 16 columns takes one load, four permutations, one store. Two warps share the 32
//| blocks of a tile of 128 x 128: about 150 instructions each, while each consumer's warps execute some 400
//| for that tile.

//| `ldmatrix` takes some 30 clocks, so several loads are in flight before the first result is permuted: as
//| many as the producer has registers for. Addresses would cost more than the work itself. So the swizzle,
//| which is the same for every eighth row, is computed once, and only additions of constants are left.

/// Returns how many blocks are loaded at a time: a divisor of `blocks`, at most `most`.
__host__ __device__ constexpr int batch_of(int blocks, int most) {
  return blocks % most == 0 ? most : batch_of(blocks, most - 1);
}

/// Transposes by matrices, 16 columns of several groups of 32 keys at a time.
template <int kMaxBatch, int kKeys, int kHeadDim>
__device__ __forceinline__ void transpose_matrices(Tile<kHeadDim, kKeys>& transposed,
                                                   Tile<kKeys, kHeadDim>& v, int warp) {
  using From = Tile<kKeys, kHeadDim>;
  using To = Tile<kHeadDim, kKeys>;
  constexpr int kBatch = batch_of(kKeys / 32, kMaxBatch);
  const int lane = threadIdx.x % 32, matrix = lane / 8, row = lane % 8;
  const unsigned char* from = v.element[0][matrix * 8 + row];
  unsigned char* to = transposed.element[0][matrix % 2 * 8 + row];
  //| The warps alternate between groups of 16 columns. All loads of a batch are issued before the first
  //| permutation; then each block of 32 keys is permuted and stored.
#pragma unroll 1
  for (int column = warp * 16; column < kHeadDim; column += kTransposers * 16) {
    const unsigned char* from_column = from + From::column_bytes(column, row);
#pragma unroll
    for (int key = 0; key < kKeys; key += 32 * kBatch) {
      uint32_t in[kBatch][4], out[4];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) ldmatrix_x4_trans(in[i], from_column + (key + 32 * i) * From::kPanel);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
          out[j] = byte_permute<0x6420>(in[i][j], in[i][j + 1]);      // the even columns of 16 keys
          out[j + 1] = byte_permute<0x7531>(in[i][j], in[i][j + 1]);  // the odd columns
        }
        stmatrix_x4(to + column * To::kPanel + To::column_bytes(key + 32 * i + matrix / 2 * 16, row), out);
      }
    }
  }
}

}  // namespace flashbook::fp8
