/// Merges two attentions of each row. One block of a single warp per row.
__global__ void __launch_bounds__(32) merge_prefix(const float* prefix_o,    // [rows, 64]
                                                   const float* prefix_lse,  // [rows]
                                                   const float* own_o,       // [rows, 64]
                                                   const float* own_lse,     // [rows]
                                                   float* o,                 // [rows, 64]
                                                   float* lse) {             // [rows]
  const int row = blockIdx.x;
  const float a = prefix_lse[row], b = own_lse[row], max = fmaxf(a, b);
  const float weight_a = a == -INFINITY ? 0 : expf(a - max);
  const float weight_b = b == -INFINITY ? 0 : expf(b - max);
  const float sum = weight_a + weight_b;
  for (int column = threadIdx.x; column < 64; column += 32) {
    // Memory that was never written may be NaN, and 0 * NaN is NaN: it is not read.
    float value = 0;
    if (weight_a > 0) value += weight_a * prefix_o[row * 64 + column];
    if (weight_b > 0) value += weight_b * own_o[row * 64 + column];
    o[row * 64 + column] = sum > 0 ? value / sum : 0;
  }
  if (threadIdx.x == 0) lse[row] = sum > 0 ? max + logf(sum) : -INFINITY;
}
