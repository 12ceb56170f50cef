/// Removes a part from each row, in place. Grid: rows; a block is a warp.
template <int kHeadDim>
__global__ void __launch_bounds__(32) take_out(const float* part_o,    // [rows, kHeadDim]
                                               const float* part_lse,  // [rows]
                                               float* o,               // [rows, kHeadDim]
                                               float* lse) {           // [rows]
  const int row = blockIdx.x;
  const float whole = lse[row], part = part_lse[row];
  __syncwarp();  // all lanes have read the log-sum-exp that one overwrites
  if (part == -INFINITY) return;
  const float weight = expf(part - whole), rest = 1 - weight;  // weights of the part and of the rest
  const bool is_left = rest > 0;
  for (int column = threadIdx.x; column < kHeadDim; column += 32) {
    const int at = row * kHeadDim + column;
    o[at] = is_left ? (o[at] - weight * part_o[at]) / rest : 0.0f;
  }
  if (threadIdx.x == 0) lse[row] = is_left ? whole + logf(rest) : -INFINITY;
}
