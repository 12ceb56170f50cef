/// \file
/// Exercise ch03-turns: four warps add to an O with six pieces.
#pragma once
#include "common/device/kernel.h"

namespace flashbook::fa1 {

// Step 3 cuts O into as many pieces as there are warps. With 96 dimensions, there are six pieces of 16, but
// still only four warps.

constexpr int kTurnWarps = 4, kTurnRows = 8, kPieceDims = 16, kPieces = 6, kTurnDims = kPieces * kPieceDims;

/// Adds weights * V over this warp's keys, every fourth, to one piece of O. No other warp may use the piece
/// at the same time. Each lane has four of its 8 * 16 elements.
inline __device__ void add_to_piece(float (&o)[kTurnRows][kTurnDims],
                                    const float* weights,  // [kTurnRows, keys]
                                    const float* v,        // [keys, kTurnDims]
                                    int keys, int piece) {
  const int warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4;
  for (int i = 0; i < 4; ++i) {
    const int dim = piece * kPieceDims + threadIdx.x % 4 * 4 + i;
    float sum = o[row][dim];
    for (int key = warp; key < keys; key += kTurnWarps)
      sum += weights[row * keys + key] * v[key * kTurnDims + dim];
    o[row][dim] = sum;
  }
}

/// O = weights * V, with a block for 8 rows, whose keys are split among its four warps. Grid: (rows / 8).
__global__ void add_in_turns(const float* weights,  // [rows, keys]
                             const float* v,        // [keys, kTurnDims]
                             float* o,              // [rows, kTurnDims]
                             int keys) {
  __shared__ float sums[kTurnRows][kTurnDims];
  const int warp = threadIdx.x / 32, first_row = blockIdx.x * kTurnRows;
  weights += first_row * keys;
  for (int i = threadIdx.x; i < kTurnRows * kTurnDims; i += 32 * kTurnWarps)
    sums[i / kTurnDims][i % kTurnDims] = 0.0f;
  __syncthreads();  // every sum is 0 before any warp adds to it
  // BEGIN EXERCISE ch03-turns: four warps add to six pieces of O
  // TODO: So far, each warp adds its part to one piece of O only, and two pieces get no part at all. The
  // barrier after the last round is yours to write, too.
  add_to_piece(sums, weights, v, keys, warp);
  __syncthreads();
  // END EXERCISE ch03-turns
  for (int i = threadIdx.x; i < kTurnRows * kTurnDims; i += 32 * kTurnWarps)
    o[first_row * kTurnDims + i] = sums[i / kTurnDims][i % kTurnDims];
}

}  // namespace flashbook::fa1
