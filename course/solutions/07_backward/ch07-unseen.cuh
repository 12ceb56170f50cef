/// Computes dV of a tile of keys. Grid: (key tiles, batch), kValueDim threads.
template <typename T>
__global__ void __launch_bounds__(kValueDim)
    value_gradient(const T* q,          // [batch, seqlen_q, kValueDim]
                   const T* k,          // [batch, seqlen_k, kValueDim]
                   const T* d_o,        // [batch, seqlen_q, kValueDim]
                   const float* lse,    // [batch, seqlen_q], of the scores q k^T
                   const int* lengths,  // [batch]: a query sees keys 0 ... length - 1
                   float* dv,           // [batch, seqlen_k, kValueDim]
                   int seqlen_q, int seqlen_k) {
  __shared__ float p[kValueDim];
  const int batch = blockIdx.y, length = lengths[batch], first_key = blockIdx.x * kValueKeys;
  q += int64_t(batch) * seqlen_q * kValueDim;
  d_o += int64_t(batch) * seqlen_q * kValueDim;
  for (int key = first_key; key < min(first_key + kValueKeys, seqlen_k); ++key) {
    const int64_t key_row = (int64_t(batch) * seqlen_k + key) * kValueDim;
    float sum = 0;  // stays 0 if no query sees the key
    for (int first = 0; key < length && first < seqlen_q; first += kValueDim) {
      const int query = first + threadIdx.x;  // a thread handles a query of P, and a dim of dV
      float score = 0;
      for (int c = 0; query < seqlen_q && c < kValueDim; ++c)
        score += to_float(q[int64_t(query) * kValueDim + c]) * to_float(k[key_row + c]);
      __syncthreads();  // all threads have read the previous probabilities
      p[threadIdx.x] = query < seqlen_q ? expf(score - lse[int64_t(batch) * seqlen_q + query]) : 0.0f;
      __syncthreads();  // the probabilities are stored
      for (int i = 0; i < min(kValueDim, seqlen_q - first); ++i)
        sum += p[i] * to_float(d_o[int64_t(first + i) * kValueDim + threadIdx.x]);
    }
    dv[key_row + threadIdx.x] = sum;
  }
}
