  const auto add = [&](int key) {
    const Factors factors = update(state, score(row, key));
    const float* v = row.v + int64_t(key) * row.head_dim;  // [head_dim]
    for (int d = 0; d < row.head_dim; ++d) o[d] = o[d] * factors.correction + factors.weight * v[d];
  };
  for (int key = 0; key < std::min(kSinks, row.keys); ++key) add(key);
  for (int key = std::max(kSinks, row.keys - window); key < row.keys; ++key) add(key);  // adds no sink twice

  for (int d = 0; d < row.head_dim; ++d) o[d] /= state.row_sum;
