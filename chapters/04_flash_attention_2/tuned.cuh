#pragma once
#include "chapters/04_flash_attention_2/warp_tile.cuh"

namespace flashbook::fa2 {

/// How a tuned kernel is cut.
template <int kWarps_, int kRowBlocks_, int kKeys_, int kChunk_, int kStages_, bool kKeepQuery_,
          int kBlocksPerSm_, bool kOverlap_ = false>
struct Tuning {
  static constexpr int kWarps = kWarps_, kRowBlocks = kRowBlocks_, kKeys = kKeys_, kChunk = kChunk_,
                       kStages = kStages_, kBlocksPerSm = kBlocksPerSm_;
  static constexpr bool kKeepQuery = kKeepQuery_, kOverlap = kOverlap_;
  static constexpr int kThreads = kWarps * 32, kQueries = kWarps * kRowBlocks * 16;
  static constexpr int shared_bytes(int head_dim) { return (kQueries + 2 * kStages * kKeys) * head_dim * 2; }
};

template <typename T, int kHeadDim, typename Cut>
__global__ void __launch_bounds__(Cut::kThreads, Cut::kBlocksPerSm)
    tuned(const T* q,  // [batch * heads, seqlen_q, kHeadDim]
          const T* k,  // [batch * kv_heads, seqlen_k, kHeadDim]
          const T* v,  // [batch * kv_heads, seqlen_k, kHeadDim]
          T* o,        // [batch * heads, seqlen_q, kHeadDim]
          float* lse,  // [batch * heads, seqlen_q]
          Problem problem) {
  constexpr int kThreads = Cut::kThreads, kRowBlocks = Cut::kRowBlocks, kKeys = Cut::kKeys,
                kChunk = Cut::kChunk, kQueries = Cut::kQueries, kWarpRows = kRowBlocks * 16;
  constexpr int kRowBytes = kHeadDim * sizeof(T), kTileBytes = kKeys * kRowBytes;
  constexpr int kSteps = kHeadDim / 16;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int head = blockIdx.y;
  const int first_query = (gridDim.x - 1 - blockIdx.x) * kQueries;
  const int last_query = min(first_query + kQueries, problem.seqlen_q) - 1;
  const int tiles = (problem.visible_keys(last_query) + kKeys - 1) / kKeys;
  const int full_tiles = problem.visible_keys(first_query) / kKeys;

  unsigned char* q_tile = dynamic_shared<unsigned char>();
  unsigned char* stages = q_tile + kQueries * kRowBytes;
  q += (problem.q_row(head) + first_query) * kHeadDim;
  k += problem.k_row(head) * kHeadDim;
  v += problem.k_row(head) * kHeadDim;

  // Fragments' places.
  const int q_lane = swizzled<kRowBytes>(warp * kWarpRows + lane % 16, lane / 16);
  const int k_lane = swizzled<kRowBytes>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  const int v_lane = swizzled<kRowBytes>(lane % 16, lane / 16);

  float out[kRowBlocks][kHeadDim / 8][4] = {};
  RowState<kRowBlocks> rows;
  for (int r = 0; r < kRowBlocks; ++r)
    for (int half = 0; half < 2; ++half) rows.max[r][half] = -INFINITY, rows.sum[r][half] = 0;
  uint32_t q_kept[Cut::kKeepQuery ? kSteps : 1][kRowBlocks][4];

  const auto load = [&](int tile) {
    unsigned char* stage = stages + tile % Cut::kStages * 2 * kTileBytes;
    const int64_t first = int64_t(tile) * kKeys * kHeadDim;
    const int valid = problem.seqlen_k - tile * kKeys;
    if (valid >= kKeys) {
      copy_tile<false, kKeys, kHeadDim, kThreads>(stage, k + first, valid);
      copy_tile<false, kKeys, kHeadDim, kThreads>(stage + kTileBytes, v + first, valid);
    } else {
      copy_tile<true, kKeys, kHeadDim, kThreads>(stage, k + first, valid);
      copy_tile<true, kKeys, kHeadDim, kThreads>(stage + kTileBytes, v + first, valid);
    }
  };

  using Scores = float[kRowBlocks][kChunk / 8][4];
  const auto multiply = [&](int tile, int c, Scores& scores) {
    const unsigned char* k_tile = stages + tile % Cut::kStages * 2 * kTileBytes;
#pragma unroll
    for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
      for (int n = 0; n < kChunk / 8; ++n)
        for (int i = 0; i < 4; ++i) scores[r][n][i] = 0;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t a[kRowBlocks][4];
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r)
        if constexpr (Cut::kKeepQuery) {
          for (int i = 0; i < 4; ++i) a[r][i] = q_kept[step][r][i];
        } else {
          ldmatrix_x4(a[r], q_tile + walk(q_lane, step) + r * 16 * kRowBytes);
        }
#pragma unroll
      for (int n = 0; n < kChunk / 16; ++n) {
        uint32_t b[4];
        ldmatrix_x4(b, k_tile + walk(k_lane, step) + (c + n * 16) * kRowBytes);
#pragma unroll
        for (int r = 0; r < kRowBlocks; ++r) {
          mma_m16n8k16<T>(scores[r][2 * n], a[r], b[0], b[1], scores[r][2 * n]);
          mma_m16n8k16<T>(scores[r][2 * n + 1], a[r], b[2], b[3], scores[r][2 * n + 1]);
        }
      }
    }
  };
  const auto use = [&]<bool kMasked>(int tile, int c, Scores& scores) {
    const unsigned char* v_tile = stages + tile % Cut::kStages * 2 * kTileBytes + kTileBytes;
    if (kMasked) {
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int query = first_query + warp * kWarpRows + r * 16 + half * 8 + lane / 4;
          const int visible = problem.visible_keys(query) - tile * kKeys - c - lane % 4 * 2;
#pragma unroll
          for (int n = 0; n < kChunk / 8; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i)
              if (n * 8 + i >= visible) scores[r][n][2 * half + i] = -INFINITY;
        }
    }
    softmax<kMasked>(scores, out, rows, problem.scale_log2e);
#pragma unroll
    for (int step = 0; step < kChunk / 16; ++step) {
      uint32_t p[kRowBlocks][4];
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&block)[4] = scores[r][2 * step + i / 2];
          p[r][i] = pack<T>(block[i % 2 * 2], block[i % 2 * 2 + 1]);
        }
#pragma unroll
      for (int n = 0; n < kHeadDim / 16; ++n) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, v_tile + walk(v_lane, n) + (c + step * 16) * kRowBytes);
#pragma unroll
        for (int r = 0; r < kRowBlocks; ++r) {
          mma_m16n8k16<T>(out[r][2 * n], p[r], b[0], b[1], out[r][2 * n]);
          mma_m16n8k16<T>(out[r][2 * n + 1], p[r], b[2], b[3], out[r][2 * n + 1]);
        }
      }
    }
  };

  copy_tile<true, kQueries, kHeadDim, kThreads>(q_tile, q, problem.seqlen_q - first_query);
  for (int i = 1; i < Cut::kStages; ++i) {
    if (tiles >= i) load(tiles - i);
    cp_async_commit();
  }
  int tile = tiles - 1;
  const auto next = [&] {
    cp_async_wait<Cut::kStages - 2>();
    __syncthreads();  // the tile is in, and no warp still reads the stage that is about to be overwritten
    if (tile - (Cut::kStages - 1) >= 0) load(tile - (Cut::kStages - 1));
    cp_async_commit();
  };
  if constexpr (Cut::kKeepQuery) {
    cp_async_wait<Cut::kStages - 2>();
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r)
        ldmatrix_x4(q_kept[step][r], q_tile + walk(q_lane, step) + r * 16 * kRowBytes);
  }
  if constexpr (!Cut::kOverlap) {
    const auto whole = [&]<bool kMasked>() {
#pragma unroll
      for (int c = 0; c < kKeys; c += kChunk) {
        Scores scores;
        multiply(tile, c, scores);
        use.template operator()<kMasked>(tile, c, scores);
      }
    };
#pragma unroll 1
    for (; tile >= full_tiles; --tile) {
      next();
      whole.template operator()<true>();
    }
#pragma unroll 1
    for (; tile >= 0; --tile) {
      next();
      whole.template operator()<false>();
    }
  } else {
    Scores even, odd;
    // `tile` is the one whose scores are made; the one before it is used.
    const auto both = [&]<bool kMasked>(Scores& old, Scores& fresh) {
      cp_async_wait<Cut::kStages - 3>();
      __syncthreads();
      if (tile - (Cut::kStages - 1) >= 0) load(tile - (Cut::kStages - 1));
      cp_async_commit();
      if (tile > 0) multiply(tile - 1, 0, fresh);
      use.template operator()<kMasked>(tile, 0, old);
      --tile;
    };
    if (tiles > 0) {
      cp_async_wait<Cut::kStages - 2>();
      __syncthreads();
      multiply(tile, 0, even);
    }
#pragma unroll 1
    while (tile >= full_tiles) {
      both.template operator()<true>(even, odd);
      if (tile < 0) break;
      both.template operator()<true>(odd, even);
    }
#pragma unroll 1
    while (tile >= 0) {
      both.template operator()<false>(even, odd);
      if (tile < 0) break;
      both.template operator()<false>(odd, even);
    }
  }

  // Epilogue.
  cp_async_wait_all();
  __syncwarp();
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = rows.sum[r][half];
      sum += __shfl_xor_sync(kWarp, sum, 1);
      sum += __shfl_xor_sync(kWarp, sum, 2);
      const float inverse = sum > 0 ? 1 / sum : 0;
      const int row = warp * kWarpRows + r * 16 + half * 8 + lane / 4;
      if (lane % 4 == 0 && first_query + row < problem.seqlen_q)
        lse[problem.q_row(head) + first_query + row] =
            sum > 0 ? rows.max[r][half] * problem.scale + logf(sum) : -INFINITY;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n)
        *reinterpret_cast<uint32_t*>(q_tile + swizzled<kRowBytes>(row, n) + lane % 4 * 4) =
            pack<T>(out[r][n][2 * half] * inverse, out[r][n][2 * half + 1] * inverse);
    }
  __syncwarp();
  o += (problem.q_row(head) + first_query) * kHeadDim;
  constexpr int kPieces = kRowBytes / 16;
#pragma unroll
  for (int i = 0; i < kWarpRows * kPieces; i += 32) {
    const int row = warp * kWarpRows + (i + lane) / kPieces, piece = (i + lane) % kPieces;
    if (first_query + row < problem.seqlen_q)
      reinterpret_cast<uint4*>(o + row * kHeadDim)[piece] =
          *reinterpret_cast<const uint4*>(q_tile + swizzled<kRowBytes>(row, piece));
  }
}

}  // namespace flashbook::fa2
