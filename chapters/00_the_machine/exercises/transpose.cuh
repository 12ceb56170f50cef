/// \file
/// Exercise ch00-transpose: rows become columns, and every sector and every bank is used.
#pragma once
#include "common/device/kernel.h"

namespace flashbook::machine {

constexpr int kSide = 32;  ///< of the square that a block moves
constexpr int kRowsAtOnce =
    8;  ///< a block has kSide by kRowsAtOnce threads: 8 warps, each a row of the square

/// to[c][r] = from[r][c]. A grid of (columns / kSide, rows / kSide) blocks of (kSide, kRowsAtOnce) threads;
/// rows and columns are multiples of kSide.
__global__ void transpose(const float* from,  // [rows, columns]
                          int rows, int columns,
                          float* to) {  // [columns, rows]
  const int first_row = int(blockIdx.y) * kSide, first_column = int(blockIdx.x) * kSide;
  const int lane = int(threadIdx.x), warp = int(threadIdx.y);
  // BEGIN SOLUTION ch00-transpose
  __shared__ float square[kSide][kSide + 1];  // one word more: lanes that read a column read 32 banks
  for (int i = warp; i < kSide; i += kRowsAtOnce)
    square[i][lane] = from[int64_t(first_row + i) * columns + first_column + lane];
  __syncthreads();  // the square is complete: a column of it comes from all warps
  for (int i = warp; i < kSide; i += kRowsAtOnce)
    to[int64_t(first_column + i) * rows + first_row + lane] = square[lane][i];
  //~ for (int i = warp; i < kSide; i += kRowsAtOnce)  // TODO: right, but where do the lanes write?
  //~   to[int64_t(first_column + lane) * rows + first_row + i] =
  //~       from[int64_t(first_row + i) * columns + first_column + lane];
  // END SOLUTION ch00-transpose
}

}  // namespace flashbook::machine
