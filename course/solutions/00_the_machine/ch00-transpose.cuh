  __shared__ float square[kSide][kSide + 1];  // one extra word: lanes read a column from 32 banks
  for (int i = warp; i < kSide; i += kRowsAtOnce)
    square[i][lane] = from[int64_t(first_row + i) * columns + first_column + lane];
  __syncthreads();  // the square is complete: all warps have stored parts of each column
  for (int i = warp; i < kSide; i += kRowsAtOnce)
    to[int64_t(first_column + i) * rows + first_row + lane] = square[lane][i];
