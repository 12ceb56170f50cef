/// Merges a part of each row into the carried O and log-sum-exp. Grid: rows; a block is a warp.
__global__ void __launch_bounds__(32) take_part_in(const float* part_o,    // [rows, 64]
                                                   const float* part_lse,  // [rows]
                                                   float* o,               // [rows, 64], carried
                                                   float* lse) {           // [rows], carried
  const int row = blockIdx.x;
  // Relative to the larger one, neither weight overflows, and one is 1. If neither has keys, the row has
  // none.
  const float top = fmaxf(part_lse[row], lse[row]), base = top == -INFINITY ? 0 : top;
  const float part = expf(part_lse[row] - base), carried = expf(lse[row] - base);
  const float sum = part + carried;
  __syncwarp();  // all lanes have read the log-sum-exp that one overwrites
  for (int column = threadIdx.x; column < 64; column += 32) {
    const int at = row * 64 + column;
    o[at] = sum > 0 ? (part * part_o[at] + carried * o[at]) / sum : 0;
  }
  if (threadIdx.x == 0) lse[row] = sum > 0 ? base + logf(sum) : -INFINITY;
}
