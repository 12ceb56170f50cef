// Four warps of 16 queries each; 64 keys at a time, in swizzled tiles that are not prefetched.
constexpr int kRows = 64, kTileBytes = kRows * kHeadDim * 2;
constexpr unsigned kEveryLane = 0xffffffff;

/// Returns the place of 16 bytes of a row, so that eight rows touch all banks.
__device__ inline int place(int row, int piece) { return row * 128 + (piece ^ row % 8) * 16; }

/// Loads rows of a tensor; rows past the last are zero-filled.
__device__ inline void fetch(unsigned char* tile, const __half* rows, int valid) {
  for (int i = threadIdx.x; i < kRows * 8; i += blockDim.x) {
    uint4 piece = {0, 0, 0, 0};
    if (i / 8 < valid) piece = reinterpret_cast<const uint4*>(rows)[i];
    *reinterpret_cast<uint4*>(tile + place(i / 8, i % 8)) = piece;
  }
}

__device__ inline float row_reduced(float x, bool sums) {
  for (int lanes = 1; lanes < 4; lanes *= 2) {
    const float other = __shfl_xor_sync(kEveryLane, x, lanes);
    x = sums ? x + other : fmaxf(x, other);
  }
  return x;
}

/// Grid: (queries / 64, batch * heads).
__global__ void __launch_bounds__(128) forward(Forward p) {
  unsigned char* q_tile = dynamic_shared<unsigned char>();
  unsigned char *k_tile = q_tile + kTileBytes, *v_tile = k_tile + kTileBytes;
  const int lane = threadIdx.x % 32, first_row = threadIdx.x / 32 * 16, first = blockIdx.x * kRows;
  const int batch = blockIdx.y / p.heads, head = blockIdx.y % p.heads;
  const int64_t q_row = int64_t(blockIdx.y) * p.seqlen_q + first;
  const int64_t k_row = (int64_t(batch) * p.kv_heads + head / (p.heads / p.kv_heads)) * p.seqlen_k;
  const int ahead = p.seqlen_k - p.seqlen_q;  // query i sees the keys up to i + ahead

  fetch(q_tile, p.q + q_row * kHeadDim, p.seqlen_q - first);
  __syncthreads();  // Q has arrived
  uint32_t a[4][4];
  for (int step = 0; step < 4; ++step)
    ldmatrix_x4(a[step], q_tile + place(first_row + lane % 16, step * 2 + lane / 16));

  float out[8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  int visible[2];
  for (int half = 0; half < 2; ++half) {
    const int query = first + first_row + half * 8 + lane / 4;
    visible[half] = p.causal ? min(p.seqlen_k, query + 1 + ahead) : p.seqlen_k;
  }
  const float to_log2 = p.scale * 1.44269504f;
  const int keys = p.causal ? min(p.seqlen_k, first + kRows + ahead) : p.seqlen_k;
  for (int key = 0; key < keys; key += kRows) {
    __syncthreads();  // no warp reads the previous tile
    fetch(k_tile, p.k + (k_row + key) * kHeadDim, p.seqlen_k - key);
    fetch(v_tile, p.v + (k_row + key) * kHeadDim, p.seqlen_k - key);
    __syncthreads();  // K and V have arrived

    float s[8][4] = {};
    for (int step = 0; step < 4; ++step)
      for (int n = 0; n < 8; n += 2) {
        uint32_t b[4];
        ldmatrix_x4(b, k_tile + place(n * 8 + lane % 8 + lane / 16 * 8, step * 2 + lane / 8 % 2));
        mma_m16n8k16<__half>(s[n], a[step], b[0], b[1], s[n]);
        mma_m16n8k16<__half>(s[n + 1], a[step], b[2], b[3], s[n + 1]);
      }

    for (int half = 0; half < 2; ++half) {
      float most = top[half];
      for (int i = 0; i < 16; ++i) {
        float& x = s[i / 2][half * 2 + i % 2];
        if (key + i / 2 * 8 + lane % 4 * 2 + i % 2 >= visible[half]) x = -INFINITY;
        most = fmaxf(most, x);
      }
      most = row_reduced(most, false);
      const float base = most == -INFINITY ? 0 : most;  // the row has seen no key
      const float correction = exp2_approx((top[half] - base) * to_log2);
      top[half] = most;
      sum[half] *= correction;
      for (int i = 0; i < 16; ++i) {
        float& x = s[i / 2][half * 2 + i % 2];
        x = exp2_approx((x - base) * to_log2);
        sum[half] += x;
        out[i / 2][half * 2 + i % 2] *= correction;
      }
    }

    for (int step = 0; step < 4; ++step) {
      uint32_t weights[4], b[4];
      for (int i = 0; i < 4; ++i) {
        const float* x = &s[2 * step + i / 2][i % 2 * 2];
        weights[i] = pack<__half>(x[0], x[1]);
      }
      for (int n = 0; n < 8; n += 2) {
        ldmatrix_x4_trans(b, v_tile + place(step * 16 + lane % 16, n + lane / 16));
        mma_m16n8k16<__half>(out[n], weights, b[0], b[1], out[n]);
        mma_m16n8k16<__half>(out[n + 1], weights, b[2], b[3], out[n + 1]);
      }
    }
  }

  for (int half = 0; half < 2; ++half) {
    const float whole = row_reduced(sum[half], true);
    const int row = first_row + half * 8 + lane / 4;
    if (first + row >= p.seqlen_q) continue;
    for (int n = 0; n < 8; ++n) {
      const float* x = &out[n][half * 2];
      const float inverse = whole > 0 ? 1 / whole : 0;
      *reinterpret_cast<uint32_t*>(p.o + (q_row + row) * kHeadDim + n * 8 + lane % 4 * 2) =
          pack<__half>(x[0] * inverse, x[1] * inverse);
    }
    if (lane % 4 == 0) p.lse[q_row + row] = whole > 0 ? top[half] * p.scale + logf(whole) : -INFINITY;
  }
}

inline void plan(Plan& plan, const Forward& p) {
  plan.launch(forward, dim3((p.seqlen_q + kRows - 1) / kRows, p.batch * p.heads), dim3(128), 3 * kTileBytes,
              p);
}
