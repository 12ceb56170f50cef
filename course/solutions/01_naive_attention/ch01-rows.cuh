  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, warps = int(blockDim.x) / 32;
  const int first = int(blockIdx.x * blockDim.x), end = min(first + int(blockDim.x), rows);
  for (int row = first + warp; row < end; row += warps) {
    const float sum = row_sum[row];
    for (int column = lane; column < columns; column += 32) o[int64_t(row) * columns + column] /= sum;
  }
