/// Adds the row's contribution to the gradient of V: to each key's row, its weight times `d_o`, [head_dim],
/// the gradient of the row of O. A masked key has the score -inf, and a masked row the log-sum-exp -inf.
inline void add_value_gradient(const Row& row, float lse, const float* d_o,
                               float* d_v) {  // [keys, head_dim]
  if (lse == kMinusInfinity) return;          // the row sees no key, and exp(-inf - -inf) would be NaN
  for (int key = 0; key < row.keys; ++key) {
    const float weight = std::exp(score(row, key) - lse);  // lse contains the sum of the whole row
    for (int d = 0; d < row.head_dim; ++d) d_v[int64_t(key) * row.head_dim + d] += weight * d_o[d];
  }
}
