/// \file
/// Exercise ch07-delta: D where the log-sum-exp also has a gradient.
#pragma once
#include "common/device/kernel.h"
#include "common/ptx/convert.h"

namespace flashbook::backward {

// Merging partial results uses their log-sum-exps L, so a loss depends on L, too: the backward pass receives
// dL along with dO. The derivative of L_i by a score S_ij is P_ij, so
//
//     dS_ij = P_ij (dP_ij - sum_c dO_ic O_ic + dL_i) = P_ij (dP_ij - D_i),   D_i = sum_c dO_ic O_ic - dL_i
//
// and no later kernel changes: it only gets a different D. Here half a warp has a row, for any head_dim. A
// lane takes pieces of 8 elements, 16 bytes: head_dim 64 has 8 pieces for 16 lanes, head_dim 192 has 24.

constexpr int kDeltaThreads = 128, kLanesPerRow = 16, kDeltaRows = kDeltaThreads / kLanesPerRow;

/// What a lane loads at once.
template <typename T>
struct alignas(16) EightElements {
  T values[8];
};

/// D of every row, and 0 for the rows from seqlen_q to padded_q, which do not exist. Grid: (padded_q /
/// kDeltaRows, heads).
template <typename T>
__global__ void __launch_bounds__(kDeltaThreads)
    row_delta(const T* o,          // [heads, seqlen_q, head_dim], o_row elements from a row to the next
              const T* d_o,        // [heads, seqlen_q, head_dim], d_o_row elements from a row to the next
              const float* d_lse,  // [heads, seqlen_q]
              float* d,            // [heads, padded_q]
              int seqlen_q, int padded_q, int head_dim, int o_row, int d_o_row) {
  const int row = blockIdx.x * kDeltaRows + threadIdx.x / kLanesPerRow, head = blockIdx.y;
  const int lane = threadIdx.x % kLanesPerRow;  // the lane's number in its row
  // BEGIN EXERCISE ch07-delta: D of a row
  // TODO: the products of the row's O and dO, added up by its lanes, minus the gradient of its log-sum-exp.
  static_cast<void>(o), static_cast<void>(d_o), static_cast<void>(d_lse), static_cast<void>(head_dim);
  static_cast<void>(o_row), static_cast<void>(d_o_row);
  if (lane == 0) d[int64_t(head) * padded_q + row] = row < seqlen_q ? 1 : 0;
  // END EXERCISE ch07-delta
}

}  // namespace flashbook::backward
