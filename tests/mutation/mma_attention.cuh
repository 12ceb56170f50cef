/// \file
/// Attention on Ampere's tensor cores: cp.async in two stages, swizzled tiles, ldmatrix, mma.sync. Faults are
/// planted in this kernel.
#pragma once
#include "common/attention/tensors.h"
#include "common/device/launch.h"
#include "common/ptx/convert.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/math.h"
#include "common/ptx/mma.h"

namespace flashbook::mma_attention {

using T = __nv_bfloat16;
constexpr int kRows = 64;      // queries per block, 16 per warp
constexpr int kKeys = 64;      // keys per tile
constexpr int kThreads = 128;  // four warps
constexpr float kLog2E = 1.44269504f;

template <int kHeadDim>
struct Shared {
  T q[kRows * kHeadDim];
  T k[2][kKeys * kHeadDim];  // two stages: tile j + 1 is copied while tile j is used
  T v[2][kKeys * kHeadDim];
};

/// Returns the offset of the 8 elements of a row that begin in column 8 * chunk. Chunks of 8 neighbouring
/// rows are permuted, so that ldmatrix finds them in different banks.
template <int kHeadDim>
__device__ int swizzled(int row, int chunk) {
  return row * kHeadDim + (chunk ^ row % 8) * 8;
}

/// Returns two floats, rounded, with the first in the low half.
__device__ inline uint32_t pack(float low, float high) {
  union {
    T halves[2];
    uint32_t both;
  } packed;
  packed.halves[0] = from_float<T>(low);
  packed.halves[1] = from_float<T>(high);
  return packed.both;
}

/// Starts the copies of 64 rows; rows past the last become zeros.
template <int kHeadDim>
__device__ void load_tile(T* tile, const T* source, int first_row, int rows) {  // source: [rows, kHeadDim]
  constexpr int kChunks = kHeadDim / 8;
  for (int i = threadIdx.x; i < 64 * kChunks; i += kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const bool inside = first_row + row < rows;
    const T* from = source + (inside ? first_row + row : 0) * kHeadDim + chunk * 8;
    cp_async_cg(tile + swizzled<kHeadDim>(row, chunk), from, inside ? 16 : 0);
  }
}

/// Grid: (queries / 64, heads).
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads) attend(const T* q,  // [heads, seqlen_q, kHeadDim]
                                                   const T* k,  // [heads, seqlen_k, kHeadDim]
                                                   const T* v,  // [heads, seqlen_k, kHeadDim]
                                                   T* o,        // [heads, seqlen_q, kHeadDim]
                                                   float* lse,  // [heads, seqlen_q]
                                                   int seqlen_q, int seqlen_k, float scale) {
  auto& shared = *dynamic_shared<Shared<kHeadDim>>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_query = blockIdx.x * kRows, head = blockIdx.y;
  const int tiles = ceil_div(seqlen_k, kKeys);
  k += head * seqlen_k * kHeadDim;
  v += head * seqlen_k * kHeadDim;
  load_tile<kHeadDim>(shared.q, q + head * seqlen_q * kHeadDim, first_query, seqlen_q);
  load_tile<kHeadDim>(shared.k[0], k, 0, seqlen_k);
  load_tile<kHeadDim>(shared.v[0], v, 0, seqlen_k);
  cp_async_commit();

  // A lane holds two rows of the results: floats 0 and 1 of each product belong to the first row, 2 and 3 to
  // the second.
  float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {}, sums[kHeadDim / 8][4] = {};
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % 2;
    cp_async_wait<0>();
    __syncthreads();  // every thread's copies have landed, and no warp reads the other stage any more
    if (tile + 1 < tiles) {
      load_tile<kHeadDim>(shared.k[1 - stage], k, (tile + 1) * kKeys, seqlen_k);
      load_tile<kHeadDim>(shared.v[1 - stage], v, (tile + 1) * kKeys, seqlen_k);
      cp_async_commit();
    }

    float scores[kKeys / 8][4] = {};
    for (int c = 0; c < kHeadDim / 16; ++c) {
      uint32_t a[4], b[4];
      ldmatrix_x4(a, shared.q + swizzled<kHeadDim>(warp * 16 + lane % 16, 2 * c + lane / 16));
      for (int n = 0; n < kKeys / 16; ++n) {
        const int key = n * 16 + lane % 8 + lane / 16 * 8;
        ldmatrix_x4(b, shared.k[stage] + swizzled<kHeadDim>(key, 2 * c + lane / 8 % 2));
        mma_m16n8k16<T>(scores[2 * n], a, b[0], b[1], scores[2 * n]);
        mma_m16n8k16<T>(scores[2 * n + 1], a, b[2], b[3], scores[2 * n + 1]);
      }
    }

    for (int half = 0; half < 2; ++half) {
      float new_max = row_max[half];
      for (int j = 0; j < kKeys / 8; ++j)
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          const int key = tile * kKeys + j * 8 + MmaM16N8K16::c(lane, i).column;
          scores[j][i] = key < seqlen_k ? scores[j][i] * (scale * kLog2E) : -INFINITY;
          new_max = fmaxf(new_max, scores[j][i]);
        }
      new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffff, new_max, 1));  // the four lanes of a row
      new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffff, new_max, 2));
      const float correction = exp2_approx(row_max[half] - new_max);
      row_max[half] = new_max;
      row_sum[half] *= correction;
      for (int j = 0; j < kKeys / 8; ++j)
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[j][i] = exp2_approx(scores[j][i] - new_max);
          row_sum[half] += scores[j][i];
        }
      for (int j = 0; j < kHeadDim / 8; ++j)
        for (int i = 2 * half; i < 2 * half + 2; ++i) sums[j][i] *= correction;
    }

    for (int n = 0; n < kKeys / 16; ++n) {
      // The sums of a product have the layout of the next product's first operand.
      const auto &left = scores[2 * n], &right = scores[2 * n + 1];
      const uint32_t a[4] = {pack(left[0], left[1]), pack(left[2], left[3]), pack(right[0], right[1]),
                             pack(right[2], right[3])};
      for (int c = 0; c < kHeadDim / 16; ++c) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, shared.v[stage] + swizzled<kHeadDim>(n * 16 + lane % 16, 2 * c + lane / 16));
        mma_m16n8k16<T>(sums[2 * c], a, b[0], b[1], sums[2 * c]);
        mma_m16n8k16<T>(sums[2 * c + 1], a, b[2], b[3], sums[2 * c + 1]);
      }
    }
  }

  for (int half = 0; half < 2; ++half) {
    float sum = row_sum[half];
    sum += __shfl_xor_sync(0xffffffff, sum, 1);
    sum += __shfl_xor_sync(0xffffffff, sum, 2);
    const int query = first_query + warp * 16 + lane / 4 + half * 8;
    if (query >= seqlen_q) continue;
    const int row = head * seqlen_q + query;
    for (int j = 0; j < kHeadDim / 8; ++j)
      for (int i = 2 * half; i < 2 * half + 2; ++i)
        o[row * kHeadDim + j * 8 + MmaM16N8K16::c(lane, i).column] = from_float<T>(sums[j][i] / sum);
    if (lane % 4 == 0) lse[row] = row_max[half] / kLog2E + logf(sum);
  }
}

template <int kHeadDim>
void run(const Spec& spec, const Tensors& tensors) {
  const dim3 grid(ceil_div(spec.seqlen_q, kRows), spec.heads);
  device::launch(attend<kHeadDim>, grid, dim3(kThreads), sizeof(Shared<kHeadDim>), nullptr,
                 static_cast<const T*>(tensors.q), static_cast<const T*>(tensors.k),
                 static_cast<const T*>(tensors.v), static_cast<T*>(tensors.o), tensors.lse, spec.seqlen_q,
                 spec.seqlen_k, spec.scale);
}

}  // namespace flashbook::mma_attention
