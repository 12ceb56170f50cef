/// Computes the weights of kWeightThreads keys of a head. Grid: (key tiles, heads).
template <typename T>
__global__ void __launch_bounds__(kWeightThreads)
    key_weights(const T* q,        // [heads, seqlen_q, kWeightDim]
                const T* k,        // [heads, seqlen_k, kWeightDim]
                const float* lse,  // [heads, seqlen_q], of the scores q k^T
                float* weights,    // [heads, seqlen_k]
                int seqlen_q, int seqlen_k) {
  __shared__ float q_tile[kWeightRows][kWeightDim];
  __shared__ float q_lse[kWeightRows];
  const int key = blockIdx.x * kWeightThreads + threadIdx.x;
  q += int64_t(blockIdx.y) * seqlen_q * kWeightDim;
  k += (int64_t(blockIdx.y) * seqlen_k + key) * kWeightDim;
  lse += int64_t(blockIdx.y) * seqlen_q;

  float sum = 0;
  for (int first = 0; first < seqlen_q; first += kWeightRows) {
    __syncthreads();  // all threads have read the previous tile
    for (int i = threadIdx.x; i < kWeightRows * kWeightDim; i += kWeightThreads) {
      const int row = i / kWeightDim, query = first + row;
      q_tile[row][i % kWeightDim] = query < seqlen_q ? to_float(q[int64_t(first) * kWeightDim + i]) : 0.0f;
    }
    if (threadIdx.x < kWeightRows) {
      const int query = first + threadIdx.x;
      q_lse[threadIdx.x] = query < seqlen_q ? lse[query] : INFINITY;  // e^(0 - inf) is 0
    }
    __syncthreads();  // the tile has arrived
    if (key >= seqlen_k) continue;
    for (int row = 0; row < kWeightRows; ++row) {
      float score = 0;
      for (int c = 0; c < kWeightDim; ++c) score += q_tile[row][c] * to_float(k[c]);
      sum += expf(score - q_lse[row]);
    }
  }
  if (key < seqlen_k) weights[int64_t(blockIdx.y) * seqlen_k + key] = sum;
}
