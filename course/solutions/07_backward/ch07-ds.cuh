#pragma unroll
  for (int i = 0; i < kQueries / 2; ++i) {
    const int column = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
    const int query = first_query + column, row_key = key + i / 2 % 2 * 8;
    const bool sees = query < problem.seqlen_q && row_key < problem.seqlen_k &&
                      (!problem.causal || row_key <= query + problem.seqlen_k - problem.seqlen_q);
    const int64_t at = int64_t(query) * problem.seqlen_k + row_key;
    p[i] = sees ? exp2_approx(problem.scale_log2 * p[i] + bias_log2[at] - lse_log2[column]) : 0.0f;
    ds[i] = p[i] * (ds[i] - d[column]);
    if (sees) atomicAdd(d_bias + at, ds[i]);  // other heads add to it as well
  }
