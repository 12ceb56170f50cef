/// \file
/// Attention by tiles on CUDA cores: plain loads, plain shared memory, __syncthreads, shuffles. Faults are
/// planted in this kernel.
#pragma once
#include "common/attention/tensors.h"
#include "common/device/launch.h"

namespace flashbook::tiled_attention {

constexpr int kRows = 64;      // queries per block
constexpr int kKeys = 64;      // keys per tile
constexpr int kThreads = 256;  // 16 x 16: thread (ty, tx) owns rows 4 ty ... 4 ty + 3 and columns tx + 16 j
constexpr int kRowsPerThread = 4;
constexpr int kKeysPerThread = kKeys / 16;

// Floats added to each row of Q, K and V. The 16 threads of a thread row read 16 rows of K at a time; the
// padding puts these into different banks.
constexpr int kPadding = 1;
// Floats added to each row of P: a warp writes 16 floats of each of two rows that are 4 apart.
constexpr int kPaddingP = 4;

template <int kHeadDim>
struct Shared {
  float q[kRows][kHeadDim + kPadding];
  float kv[kKeys][kHeadDim + kPadding];  // K of a tile, then V of the same tile
  float p[kRows][kKeys + kPaddingP];
};

/// Loads rows first_row ... of `source`, with zeros for rows beyond the last.
template <int kHeadDim, int kTileRows>
__device__ void load_tile(float (&tile)[kTileRows][kHeadDim + kPadding],
                          const float* source,  // [rows, kHeadDim]
                          int first_row, int rows) {
  for (int i = threadIdx.x; i < kTileRows * kHeadDim; i += kThreads) {
    const int row = i / kHeadDim, column = i % kHeadDim;
    const bool inside = first_row + row < rows;
    tile[row][column] = inside ? source[(first_row + row) * kHeadDim + column] : 0.0f;
  }
}

/// Combines a value over the 16 threads that share a row.
template <typename Combine>
__device__ float row_reduce(float value, Combine combine) {
  for (int distance = 8; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(0xffffffff, value, distance));
  return value;
}

/// Grid: (queries / 64, heads).
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads) attend(const float* q,  // [heads, seqlen_q, kHeadDim]
                                                   const float* k,  // [heads, seqlen_k, kHeadDim]
                                                   const float* v,  // [heads, seqlen_k, kHeadDim]
                                                   float* o,        // [heads, seqlen_q, kHeadDim]
                                                   float* lse,      // [heads, seqlen_q]
                                                   int seqlen_q, int seqlen_k, float scale) {
  constexpr int kColumns = kHeadDim / 16;  // columns of O per thread
  auto& shared = *dynamic_shared<Shared<kHeadDim>>();
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  const int first_query = blockIdx.x * kRows, head = blockIdx.y;
  k += head * seqlen_k * kHeadDim;
  v += head * seqlen_k * kHeadDim;
  load_tile<kHeadDim>(shared.q, q + head * seqlen_q * kHeadDim, first_query, seqlen_q);

  float row_max[kRowsPerThread], row_sum[kRowsPerThread] = {}, sums[kRowsPerThread][kColumns] = {};
  for (float& maximum : row_max) maximum = -INFINITY;
  for (int first_key = 0; first_key < seqlen_k; first_key += kKeys) {
    __syncthreads();  // every warp is done with V of the previous tile
    load_tile<kHeadDim>(shared.kv, k, first_key, seqlen_k);
    __syncthreads();  // Q and K are complete
    float scores[kRowsPerThread][kKeysPerThread] = {};
    for (int c = 0; c < kHeadDim; ++c)
      for (int i = 0; i < kRowsPerThread; ++i)
        for (int j = 0; j < kKeysPerThread; ++j)
          scores[i][j] += shared.q[kRowsPerThread * ty + i][c] * shared.kv[tx + 16 * j][c];

    for (int i = 0; i < kRowsPerThread; ++i) {
      float tile_max = -INFINITY;
      for (int j = 0; j < kKeysPerThread; ++j) {
        const bool visible = first_key + tx + 16 * j < seqlen_k;
        scores[i][j] = visible ? scores[i][j] * scale : -INFINITY;
        tile_max = fmaxf(tile_max, scores[i][j]);
      }
      const float new_max =
          fmaxf(row_max[i], row_reduce(tile_max, [](float a, float b) { return fmaxf(a, b); }));
      const float correction = __expf(row_max[i] - new_max);
      row_max[i] = new_max;
      float tile_sum = 0.0f;
      for (int j = 0; j < kKeysPerThread; ++j) {
        const float p = __expf(scores[i][j] - new_max);
        tile_sum += p;
        shared.p[kRowsPerThread * ty + i][tx + 16 * j] = p;
      }
      row_sum[i] = row_sum[i] * correction + row_reduce(tile_sum, [](float a, float b) { return a + b; });
      for (float& sum : sums[i]) sum *= correction;
    }
    __syncthreads();  // every warp is done with K
    load_tile<kHeadDim>(shared.kv, v, first_key, seqlen_k);
    __syncthreads();  // V and P are complete
    for (int key = 0; key < kKeys; ++key)
      for (int i = 0; i < kRowsPerThread; ++i)
        for (int j = 0; j < kColumns; ++j)
          sums[i][j] += shared.p[kRowsPerThread * ty + i][key] * shared.kv[key][tx + 16 * j];
  }

  for (int i = 0; i < kRowsPerThread; ++i) {
    const int query = first_query + kRowsPerThread * ty + i;
    if (query >= seqlen_q) break;
    const int row = head * seqlen_q + query;
    for (int j = 0; j < kColumns; ++j) o[row * kHeadDim + tx + 16 * j] = sums[i][j] / row_sum[i];
    if (tx == 0) lse[row] = row_max[i] + logf(row_sum[i]);
  }
}

template <int kHeadDim>
void run(const Spec& spec, const Tensors& tensors) {
  const dim3 grid(ceil_div(spec.seqlen_q, kRows), spec.heads);
  device::launch(attend<kHeadDim>, grid, dim3(kThreads), sizeof(Shared<kHeadDim>), nullptr,
                 static_cast<const float*>(tensors.q), static_cast<const float*>(tensors.k),
                 static_cast<const float*>(tensors.v), static_cast<float*>(tensors.o), tensors.lse,
                 spec.seqlen_q, spec.seqlen_k, spec.scale);
}

}  // namespace flashbook::tiled_attention
