// One warp per query, then one warp per key; a lane has two dims.
constexpr float kLog2e = 1.44269504f;

__device__ inline float sum_of_lanes(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffff, x, lanes);
  return x;
}

/// A lane's dims of a row.
struct Two {
  float a, b;
  __device__ float dot(const Two& other) const { return sum_of_lanes(a * other.a + b * other.b); }
  __device__ void add(float factor, const Two& other) { a += factor * other.a, b += factor * other.b; }
};
__device__ inline Two load(const __half* tensor, int64_t row) {
  const __half* at = tensor + row * kHeadDim + threadIdx.x * 2;
  return {to_float(at[0]), to_float(at[1])};
}
__device__ inline void store(__half* tensor, int64_t row, const Two& x, float factor) {
  __half* at = tensor + row * kHeadDim + threadIdx.x * 2;
  at[0] = from_float<__half>(x.a * factor), at[1] = from_float<__half>(x.b * factor);
}

/// Computes dQ, and D = rowsum(dO * O) for the kernel that follows. Grid: (seqlen_q, batch * heads).
__global__ void __launch_bounds__(32) query_gradients(Backward p, float* delta) {
  const int query = blockIdx.x, batch = blockIdx.y / p.heads, head = blockIdx.y % p.heads;
  const int64_t row = int64_t(blockIdx.y) * p.seqlen_q + query;
  const int64_t keys = (int64_t(batch) * p.kv_heads + head / (p.heads / p.kv_heads)) * p.seqlen_k;
  const int visible = p.causal ? min(p.seqlen_k, query + 1 + p.seqlen_k - p.seqlen_q) : p.seqlen_k;
  const Two q = load(p.q, row), d_o = load(p.d_o, row);
  const float d = d_o.dot(load(p.o, row)), lse = p.lse[row];
  Two dq = {0, 0};
  for (int key = 0; key < visible; ++key) {
    const Two k = load(p.k, keys + key);
    const float weight = exp2_approx((q.dot(k) * p.scale - lse) * kLog2e);
    dq.add(weight * (d_o.dot(load(p.v, keys + key)) - d), k);
  }
  store(p.dq, row, dq, p.scale);
  if (threadIdx.x == 0) delta[row] = d;
}

/// Computes dK and dV, which are sums over the query heads of a group. Grid: (seqlen_k, batch * kv_heads).
__global__ void __launch_bounds__(32) key_gradients(Backward p, const float* delta) {
  const int key = blockIdx.x, group = p.heads / p.kv_heads;
  const int64_t key_row = int64_t(blockIdx.y) * p.seqlen_k + key;
  const int first = p.causal ? max(0, key - (p.seqlen_k - p.seqlen_q)) : 0;
  const Two k = load(p.k, key_row), v = load(p.v, key_row);
  Two dk = {0, 0}, dv = {0, 0};
  for (int head = 0; head < group; ++head)
    for (int query = first; query < p.seqlen_q; ++query) {
      const int64_t row = (int64_t(blockIdx.y) * group + head) * p.seqlen_q + query;
      const Two q = load(p.q, row), d_o = load(p.d_o, row);
      const float weight = exp2_approx((q.dot(k) * p.scale - p.lse[row]) * kLog2e);
      dv.add(weight, d_o);
      dk.add(weight * (d_o.dot(v) - delta[row]), q);
    }
  store(p.dk, key_row, dk, p.scale);
  store(p.dv, key_row, dv, 1);
}

inline void plan(Plan& plan, const Backward& p) {
  float* delta = plan.workspace<float>(std::size_t(p.batch) * p.heads * p.seqlen_q);
  plan.launch(query_gradients, dim3(p.seqlen_q, p.batch * p.heads), dim3(32), 0, p, delta);
  plan.launch(key_gradients, dim3(p.seqlen_k, p.batch * p.kv_heads), dim3(32), 0, p, delta);
}
