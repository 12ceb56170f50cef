// All variants: one warp per query, which tests for every key whether it is visible; a lane has two dims.
constexpr float kLog2e = 1.44269504f;

__device__ inline float sum_of_lanes(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffff, x, lanes);
  return x;
}

/// `d` is the distance from the key to the query's own; negative if the key comes later.
__device__ inline bool sees(const Variant& p, int key, int d) {
  switch (p.mask) {
    case Mask::dilated:
      return abs(d) < p.width * p.stride && d % p.stride == 0;
    case Mask::strided:
      return d >= 0 && (d < p.width || key % p.stride == 0);
    case Mask::blocks:
      return d >= 0 && ((key + d) / p.width == key / p.width || key % p.width == p.width - 1);
    case Mask::powers:
      return d >= 0 && (d & (d - 1)) == 0;
  }
  return false;
}

__device__ inline float changed(const Variant& p, float score, int head, int d) {
  switch (p.score) {
    case Score::capped:
      return p.cap * tanhf(score / p.cap);
    case Score::linear:
      return score - p.by_head[head] * float(abs(d));
    case Score::logarithmic:
      return score - p.by_head[head] * log1pf(float(abs(d)));
    case Score::sink:
      break;
  }
  return score;
}

/// Grid: (seqlen_q, batch * heads).
__global__ void __launch_bounds__(32) attend(Variant p) {
  const int batch = blockIdx.y / p.heads, head = blockIdx.y % p.heads, dim = threadIdx.x * 2;
  const int own = int(blockIdx.x) + p.seqlen_k - p.seqlen_q;
  const int64_t row = int64_t(blockIdx.y) * p.seqlen_q + blockIdx.x;
  const int64_t keys = (int64_t(batch) * p.kv_heads + head / (p.heads / p.kv_heads)) * p.seqlen_k;
  const __half* const q = p.q + row * kHeadDim + dim;
  const float q0 = to_float(q[0]) * p.scale, q1 = to_float(q[1]) * p.scale;

  // A sink is a key that precedes all others.
  const bool has_sink = p.score == Score::sink;
  float top = has_sink ? p.by_head[head] : -INFINITY, sum = has_sink ? 1 : 0, out[2] = {};
  for (int key = 0; key < p.seqlen_k; ++key) {
    if (!sees(p, key, own - key)) continue;
    const int64_t at = (keys + key) * kHeadDim + dim;
    const float score = sum_of_lanes(q0 * to_float(p.k[at]) + q1 * to_float(p.k[at + 1]));
    const float s = changed(p, score, head, own - key);
    const float next = fmaxf(top, s);
    const float correction = exp2_approx((top - next) * kLog2e), weight = exp2_approx((s - next) * kLog2e);
    for (int i = 0; i < 2; ++i) out[i] = out[i] * correction + weight * to_float(p.v[at + i]);
    sum = sum * correction + weight;
    top = next;
  }

  for (int i = 0; i < 2; ++i) p.o[row * kHeadDim + dim + i] = from_float<__half>(sum > 0 ? out[i] / sum : 0);
  if (threadIdx.x == 0) p.lse[row] = sum > 0 ? top + logf(sum) : -INFINITY;
}

inline void plan(Plan& plan, const Variant& p) {
  plan.launch(attend, dim3(p.seqlen_q, p.batch * p.heads), dim3(32), 0, p);
}
