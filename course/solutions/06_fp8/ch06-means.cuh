  const float row_sum[2] = {quad_sum(sums[0]), quad_sum(sums[1])};  // a lane has a quarter of the row
#pragma unroll
  for (int group = 0; group < kFloats / 4; ++group) {
    const float2 of_columns = reinterpret_cast<const float2*>(mean)[4 * group + threadIdx.x % 4];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      output[4 * group + 2 * r] += row_sum[r] * of_columns.x;
      output[4 * group + 2 * r + 1] += row_sum[r] * of_columns.y;
    }
  }
