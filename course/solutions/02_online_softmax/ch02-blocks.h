/// Computes one row of attention, one block of keys at a time. Adds to `o`, [head_dim] zeros; returns the
/// log-sum-exp.
inline float attention_row_in_blocks(const Row& row, float* o) {
  SoftmaxState state;
  for (int first = 0; first < row.keys; first += kBlock) {
    const int keys = std::min(kBlock, row.keys - first);
    float weights[kBlock];  // first the scores
    float new_max = state.row_max;
    for (int i = 0; i < keys; ++i) {
      weights[i] = score(row, first + i);
      new_max = std::max(new_max, weights[i]);
    }
    // Computed once, for both sums: below, row_max is no longer the maximum that O is relative to.
    const float correction = std::exp(state.row_max - new_max);

    float block_sum = 0;
    for (int i = 0; i < keys; ++i) {
      weights[i] = std::exp(weights[i] - new_max);
      block_sum += weights[i];
    }
    state.row_sum = state.row_sum * correction + block_sum;
    state.row_max = new_max;

    for (int d = 0; d < row.head_dim; ++d) {
      float sum = 0;
      for (int i = 0; i < keys; ++i) sum += weights[i] * row.v[int64_t(first + i) * row.head_dim + d];
      o[d] = o[d] * correction + sum;
    }
  }

  for (int d = 0; d < row.head_dim; ++d) o[d] /= state.row_sum;
  return state.log_sum_exp();
}
