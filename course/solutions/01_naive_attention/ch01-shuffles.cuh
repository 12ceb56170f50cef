/// Returns the largest score of the lane's row with its key, in every lane of the row. Among equal scores,
/// the one with the smallest key.
inline __device__ Scored row_largest(Scored mine) {
  for (int distance = 16; distance > 1; distance /= 2) {
    const float score = __shfl_xor_sync(0xffffffffu, mine.score, distance);
    const int key = __shfl_xor_sync(0xffffffffu, mine.key, distance);
    if (score > mine.score || (score == mine.score && key < mine.key)) mine = {score, key};
  }
  return mine;
}

/// Returns the sum of `value` over the lane's row, in every lane of the row.
inline __device__ float row_sum(float value) {
  for (int distance = 16; distance > 1; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}
