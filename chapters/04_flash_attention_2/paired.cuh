#pragma once
#include "chapters/04_flash_attention_2/warp_tile.cuh"
#include "common/ptx/barrier.h"

namespace flashbook::fa2 {

template <int kWarps_, int kKeys_, int kStages_, int kBlocksPerSm_>
struct PairTuning {
  static constexpr int kWarps = kWarps_, kKeys = kKeys_, kStages = kStages_, kBlocksPerSm = kBlocksPerSm_;
  static constexpr int kThreads = kWarps * 32, kQueries = kWarps * 16;
  static constexpr int shared_bytes(int head_dim) {
    return (kQueries + 2 * kStages * kKeys) * head_dim * 2 + kQueries * kKeys * 2 + kQueries * 8;
  }
};

/// Waits for the other warp of the pair.
__device__ __forceinline__ void pair_sync(int pair) {
  switch (pair) {
    case 0:
      return named_barrier_sync<1, 64>();
    case 1:
      return named_barrier_sync<2, 64>();
    case 2:
      return named_barrier_sync<3, 64>();
    default:
      return named_barrier_sync<4, 64>();
  }
}

template <typename T, int kHeadDim, typename Cut>
__global__ void __launch_bounds__(Cut::kThreads, Cut::kBlocksPerSm)
    paired(const T* q,  // [batch * heads, seqlen_q, kHeadDim]
           const T* k,  // [batch * kv_heads, seqlen_k, kHeadDim]
           const T* v,  // [batch * kv_heads, seqlen_k, kHeadDim]
           T* o,        // [batch * heads, seqlen_q, kHeadDim]
           float* lse,  // [batch * heads, seqlen_q]
           Problem problem) {
  constexpr int kThreads = Cut::kThreads, kKeys = Cut::kKeys, kQueries = Cut::kQueries;
  constexpr int kRowBytes = kHeadDim * sizeof(T), kTileBytes = kKeys * kRowBytes;
  constexpr int kPBytes = kKeys * sizeof(T), kHalfKeys = kKeys / 2, kHalfDim = kHeadDim / 2;
  constexpr int kSteps = kHeadDim / 16;
  const int lane = threadIdx.x % 32, pair = threadIdx.x / 64, side = threadIdx.x / 32 % 2;
  const int head = blockIdx.y;
  const int first_query = (gridDim.x - 1 - blockIdx.x) * kQueries;
  const int last_query = min(first_query + kQueries, problem.seqlen_q) - 1;
  const int tiles = (problem.visible_keys(last_query) + kKeys - 1) / kKeys;
  const int full_tiles = problem.visible_keys(first_query) / kKeys;

  unsigned char* q_tile = dynamic_shared<unsigned char>();
  unsigned char* stages = q_tile + kQueries * kRowBytes;
  unsigned char* p_tile = stages + 2 * Cut::kStages * kTileBytes;
  float* exchange = reinterpret_cast<float*>(p_tile + kQueries * kPBytes);  // [2][kQueries]
  q += (problem.q_row(head) + first_query) * kHeadDim;
  k += problem.k_row(head) * kHeadDim;
  v += problem.k_row(head) * kHeadDim;

  const int q_lane = swizzled<kRowBytes>(pair * 32 + lane % 16, lane / 16);
  const int k_lane = swizzled<kRowBytes>(side * kHalfKeys + lane % 8 + lane / 16 * 8, lane / 8 % 2);
  const int v_lane = swizzled<kRowBytes>(lane % 16, lane / 16) + side * kHalfDim * int(sizeof(T));
  float* mine = exchange + side * kQueries + pair * 32 + lane / 4;
  const float* theirs = exchange + (1 - side) * kQueries + pair * 32 + lane / 4;

  float out[2][kHalfDim / 8][4] = {};
  float row_max[2][2], row_sum[2][2] = {};
  for (int r = 0; r < 2; ++r)
    for (int half = 0; half < 2; ++half) row_max[r][half] = -INFINITY;

  const auto load_one = [&](const T* source, unsigned char* target, int tile) {
    const int64_t first = int64_t(tile) * kKeys * kHeadDim;
    const int valid = problem.seqlen_k - tile * kKeys;
    if (valid >= kKeys)
      copy_tile<false, kKeys, kHeadDim, kThreads>(target, source + first, valid);
    else
      copy_tile<true, kKeys, kHeadDim, kThreads>(target, source + first, valid);
  };
  const auto k_stage = [&](int tile) { return stages + tile % Cut::kStages * 2 * kTileBytes; };
  const auto v_stage = [&](int tile) { return k_stage(tile) + kTileBytes; };

  const auto use = [&]<bool kMasked>(int tile) {
    if constexpr (Cut::kStages == 2) {
      cp_async_wait<0>();
      __syncthreads();
      if (tile > 0) {
        load_one(k, k_stage(tile - 1), tile - 1);
        load_one(v, v_stage(tile - 1), tile - 1);
      }
      cp_async_commit();
    } else {
      cp_async_wait<0>();
      __syncthreads();  // K is in; nobody still reads V
      load_one(v, v_stage(tile), tile);
      cp_async_commit();
    }
    const unsigned char* k_tile = k_stage(tile);
    const unsigned char* v_tile = v_stage(tile);
    float scores[2][kHalfKeys / 8][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t a[2][4];
#pragma unroll
      for (int r = 0; r < 2; ++r) ldmatrix_x4(a[r], q_tile + walk(q_lane, step) + r * 16 * kRowBytes);
#pragma unroll
      for (int n = 0; n < kHalfKeys / 16; ++n) {
        uint32_t b[4];
        ldmatrix_x4(b, k_tile + walk(k_lane, step) + n * 16 * kRowBytes);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          mma_m16n8k16<T>(scores[r][2 * n], a[r], b[0], b[1], scores[r][2 * n]);
          mma_m16n8k16<T>(scores[r][2 * n + 1], a[r], b[2], b[3], scores[r][2 * n + 1]);
        }
      }
    }
    if (kMasked) {
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int query = first_query + pair * 32 + r * 16 + half * 8 + lane / 4;
          const int visible = problem.visible_keys(query) - tile * kKeys - side * kHalfKeys - lane % 4 * 2;
#pragma unroll
          for (int n = 0; n < kHalfKeys / 8; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i)
              if (n * 8 + i >= visible) scores[r][n][2 * half + i] = -INFINITY;
        }
    }
    float new_max[2][2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float top = row_max[r][half];
#pragma unroll
        for (int n = 0; n < kHalfKeys / 8; ++n)
          top = fmaxf(top, fmaxf(scores[r][n][2 * half], scores[r][n][2 * half + 1]));
        top = fmaxf(top, __shfl_xor_sync(kWarp, top, 1));
        new_max[r][half] = fmaxf(top, __shfl_xor_sync(kWarp, top, 2));
        if (lane % 4 == 0) mine[r * 16 + half * 8] = new_max[r][half];
      }
    if constexpr (Cut::kStages == 2) {
      pair_sync(pair);
    } else {
      __syncthreads();  // everyone is done with K
      if (tile > 0) load_one(k, k_stage(tile - 1), tile - 1);
      cp_async_commit();
    }
    bool rises = false;
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        new_max[r][half] = fmaxf(new_max[r][half], theirs[r * 16 + half * 8]);
        rises |= (new_max[r][half] - row_max[r][half]) * problem.scale_log2e > kSlack;
      }
    if (__any_sync(kWarp, rises)) {
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float correction = exp2_approx((row_max[r][half] - new_max[r][half]) * problem.scale_log2e);
          if (kMasked && new_max[r][half] == -INFINITY) correction = 1;
          row_max[r][half] = new_max[r][half];
          row_sum[r][half] *= correction;
#pragma unroll
          for (int n = 0; n < kHalfDim / 8; ++n) {
            out[r][n][2 * half] *= correction;
            out[r][n][2 * half + 1] *= correction;
          }
        }
    }
    uint32_t p[kHalfKeys / 16][2][4];
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float offset = -row_max[r][half] * problem.scale_log2e;
        if (kMasked && row_max[r][half] == -INFINITY) offset = 0;
#pragma unroll
        for (int n = 0; n < kHalfKeys / 8; ++n) {
          const float p0 = exp2_approx(fmaf(scores[r][n][2 * half], problem.scale_log2e, offset));
          const float p1 = exp2_approx(fmaf(scores[r][n][2 * half + 1], problem.scale_log2e, offset));
          row_sum[r][half] += p0 + p1;
          const uint32_t both = pack<T>(p0, p1);
          p[n / 2][r][n % 2 * 2 + half] = both;
          const int row = pair * 32 + r * 16 + half * 8 + lane / 4;
          *reinterpret_cast<uint32_t*>(p_tile + swizzled<kPBytes>(row, side * kHalfKeys / 8 + n) +
                                       lane % 4 * 4) = both;
        }
      }
    if constexpr (Cut::kStages == 1) {
      cp_async_wait<1>();
      __syncthreads();  // V is in
    }
    const auto values = [&](const uint32_t(&a)[2][4], int key) {
#pragma unroll
      for (int n = 0; n < kHalfDim / 16; ++n) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, v_tile + walk(v_lane, n) + key * kRowBytes);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          mma_m16n8k16<T>(out[r][2 * n], a[r], b[0], b[1], out[r][2 * n]);
          mma_m16n8k16<T>(out[r][2 * n + 1], a[r], b[2], b[3], out[r][2 * n + 1]);
        }
      }
    };
#pragma unroll
    for (int step = 0; step < kHalfKeys / 16; ++step) values(p[step], side * kHalfKeys + step * 16);
    if constexpr (Cut::kStages == 2) pair_sync(pair);
    const int p_lane = swizzled<kPBytes>(pair * 32 + lane % 16, lane / 16 + (1 - side) * kHalfKeys / 8);
#pragma unroll
    for (int step = 0; step < kHalfKeys / 16; ++step) {
      uint32_t a[2][4];
#pragma unroll
      for (int r = 0; r < 2; ++r) ldmatrix_x4(a[r], p_tile + walk(p_lane, step) + r * 16 * kPBytes);
      values(a, (1 - side) * kHalfKeys + step * 16);
    }
  };

  copy_tile<true, kQueries, kHeadDim, kThreads>(q_tile, q, problem.seqlen_q - first_query);
  if (tiles > 0) {
    load_one(k, k_stage(tiles - 1), tiles - 1);
    if (Cut::kStages == 2) load_one(v, v_stage(tiles - 1), tiles - 1);
  }
  cp_async_commit();
  int tile = tiles - 1;
#pragma unroll 1
  for (; tile >= full_tiles; --tile) use.template operator()<true>(tile);
#pragma unroll 1
  for (; tile >= 0; --tile) use.template operator()<false>(tile);

  // Epilogue.
  cp_async_wait_all();
  __syncthreads();
  for (int r = 0; r < 2; ++r)
    for (int half = 0; half < 2; ++half) {
      row_sum[r][half] += __shfl_xor_sync(kWarp, row_sum[r][half], 1);
      row_sum[r][half] += __shfl_xor_sync(kWarp, row_sum[r][half], 2);
      if (lane % 4 == 0) mine[r * 16 + half * 8] = row_sum[r][half];
    }
  pair_sync(pair);
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = row_sum[r][half] + theirs[r * 16 + half * 8];
      const float inverse = sum > 0 ? 1 / sum : 0;
      const int row = pair * 32 + r * 16 + half * 8 + lane / 4;
      if (side == 0 && lane % 4 == 0 && first_query + row < problem.seqlen_q)
        lse[problem.q_row(head) + first_query + row] =
            sum > 0 ? row_max[r][half] * problem.scale + logf(sum) : -INFINITY;
#pragma unroll
      for (int n = 0; n < kHalfDim / 8; ++n)
        *reinterpret_cast<uint32_t*>(q_tile + swizzled<kRowBytes>(row, side * kHalfDim / 8 + n) +
                                     lane % 4 * 4) =
            pack<T>(out[r][n][2 * half] * inverse, out[r][n][2 * half + 1] * inverse);
    }
  __syncwarp();
  o += (problem.q_row(head) + first_query) * kHeadDim;
  constexpr int kPieces = kRowBytes / 32;
#pragma unroll
  for (int i = 0; i < 32 * kPieces; i += 32) {
    const int row = pair * 32 + (i + lane) / kPieces, piece = side * kPieces + (i + lane) % kPieces;
    if (first_query + row < problem.seqlen_q)
      reinterpret_cast<uint4*>(o + row * kHeadDim)[piece] =
          *reinterpret_cast<const uint4*>(q_tile + swizzled<kRowBytes>(row, piece));
  }
}

}  // namespace flashbook::fa2
