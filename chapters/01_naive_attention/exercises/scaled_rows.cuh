/// \file
/// Exercise ch01-rows: the picture that goes round.
#pragma once
#include "common/device/kernel.h"

namespace flashbook::naive {

// Attention can divide late: O is first summed with weights that are not normalised, and at the end each row
// is divided by the sum of its weights. This is that last kernel, written according to a popular picture:
// "coalesced: thread i reads row i".

constexpr int kScaledThreads = 128;  // threads and rows per block

/// Divides each row by its sum, in place. Grid: (rows / kScaledThreads); kScaledThreads threads.
__global__ void divide_rows(float* o,              // [rows, columns]
                            const float* row_sum,  // [rows]
                            int rows, int columns) {
  // BEGIN EXERCISE ch01-rows: the picture that goes round
  const int row = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= rows) return;
  const float sum = row_sum[row];
  for (int column = 0; column < columns; ++column) o[int64_t(row) * columns + column] /= sum;
  // END EXERCISE ch01-rows
}

}  // namespace flashbook::naive
