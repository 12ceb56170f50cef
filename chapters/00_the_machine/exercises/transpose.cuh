/// \file
/// Exercise ch00-transpose: rows become columns, with every sector and every bank in use.
#pragma once
#include "common/device/kernel.h"

namespace flashbook::machine {

constexpr int kSide = 32;  ///< side of the square that a block moves
constexpr int kRowsAtOnce =
    8;  ///< a block has kSide by kRowsAtOnce threads: 8 warps, each with a row of the square

/// to[c][r] = from[r][c]. A grid of (columns / kSide, rows / kSide) blocks of (kSide, kRowsAtOnce) threads;
/// rows and columns are multiples of kSide.
__global__ void transpose(const float* from,  // [rows, columns]
                          int rows, int columns,
                          float* to) {  // [columns, rows]
  const int first_row = int(blockIdx.y) * kSide, first_column = int(blockIdx.x) * kSide;
  const int lane = int(threadIdx.x), warp = int(threadIdx.y);
  // BEGIN EXERCISE ch00-transpose: rows become columns
  for (int i = warp; i < kSide; i += kRowsAtOnce)  // TODO: correct, but where do the lanes write?
    to[int64_t(first_column + lane) * rows + first_row + i] =
        from[int64_t(first_row + i) * columns + first_column + lane];
  // END EXERCISE ch00-transpose
}

}  // namespace flashbook::machine
