/// \file
/// Attention whose results are stored by TMA: a thread computes a row and writes it into a swizzled tile, and
/// one thread stores the tile; the next tile reuses the buffer. Faults are planted in this kernel.
#pragma once
#include "common/attention/tensors.h"
#include "common/device/launch.h"
#include "common/device/swizzle.h"
#include "common/ptx/convert.h"
#include "common/ptx/fence.h"
#include "common/ptx/tma.h"
#include "tests/mutation/head_map.h"

namespace flashbook::tma_epilogue {

using T = __nv_bfloat16;
constexpr int kRows = 64;     // queries per tile, one per thread
constexpr int kTiles = 2;     // tiles per block, one after another
constexpr int kThreads = 64;  // two warps
constexpr int kHeadDim = 64;  // a row is 128 bytes: the span of the swizzle

/// Computes one query's attention. Returns the log-sum-exp.
__device__ inline float attend_row(float (&sums)[kHeadDim],
                                   const T* q,  // [kHeadDim]
                                   const T* k,  // [seqlen_k, kHeadDim]
                                   const T* v,  // [seqlen_k, kHeadDim]
                                   int seqlen_k, float scale) {
  float query[kHeadDim], row_max = -INFINITY, row_sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kHeadDim; ++c) query[c] = to_float(q[c]) * scale;
#pragma unroll
  for (int c = 0; c < kHeadDim; ++c) sums[c] = 0.0f;
  for (int key = 0; key < seqlen_k; ++key) {
    float score = 0.0f;
#pragma unroll
    for (int c = 0; c < kHeadDim; ++c) score += query[c] * to_float(k[key * kHeadDim + c]);
    const float new_max = fmaxf(row_max, score);
    const float correction = __expf(row_max - new_max), p = __expf(score - new_max);
    row_max = new_max;
    row_sum = row_sum * correction + p;
#pragma unroll
    for (int c = 0; c < kHeadDim; ++c) sums[c] = sums[c] * correction + p * to_float(v[key * kHeadDim + c]);
  }
#pragma unroll
  for (int c = 0; c < kHeadDim; ++c) sums[c] /= row_sum;
  return row_max + logf(row_sum);
}

/// Grid: (queries / 128, heads).
__global__ void __launch_bounds__(kThreads) attend(const T* q,  // [heads, seqlen_q, kHeadDim]
                                                   const T* k,  // [heads, seqlen_k, kHeadDim]
                                                   const T* v,  // [heads, seqlen_k, kHeadDim]
                                                   const __grid_constant__ CUtensorMap o_map,
                                                   float* lse,  // [heads, seqlen_q]
                                                   int seqlen_q, int seqlen_k, float scale) {
  auto* tile = dynamic_shared<unsigned char>();  // [kRows, 128 bytes], swizzled
  const int head = blockIdx.y;
  for (int i = 0; i < kTiles; ++i) {
    const int first_query = (blockIdx.x * kTiles + i) * kRows;
    const int query = first_query + threadIdx.x;
    const int row = head * seqlen_q + min(query, seqlen_q - 1);  // threads past the end repeat the last query
    float sums[kHeadDim];
    const float row_lse = attend_row(sums, q + row * kHeadDim, k + head * seqlen_k * kHeadDim,
                                     v + head * seqlen_k * kHeadDim, seqlen_k, scale);
    if (query < seqlen_q) lse[row] = row_lse;

    if (threadIdx.x == 0) tma_store_wait_read<0>();
    __syncthreads();  // the previous tile's store has read the buffer
#pragma unroll
    for (int chunk = 0; chunk < kHeadDim / 8; ++chunk) {
      union {
        T elements[8];
        uint4 bytes;
      } eight;
#pragma unroll
      for (int c = 0; c < 8; ++c) eight.elements[c] = from_float<T>(sums[8 * chunk + c]);
      const uint32_t offset = threadIdx.x * kHeadDim * sizeof(T) + chunk * sizeof(uint4);
      *reinterpret_cast<uint4*>(tile + swizzled(Swizzle::b128, offset)) = eight.bytes;
    }
    fence_proxy_async();  // makes this thread's writes visible to TMA
    __syncthreads();      // every row is written and fenced
    if (threadIdx.x == 0) {
      tma_store(o_map, tile, {0, first_query, head});  // rows past the last are not written
      tma_store_commit();
    }
  }
  if (threadIdx.x == 0) tma_store_wait<0>();
}

template <int>
void run(const Spec& spec, const Tensors& tensors) {
  const dim3 grid(ceil_div(spec.seqlen_q, kTiles * kRows), spec.heads);
  device::launch(attend, grid, dim3(kThreads), kRows * kHeadDim * sizeof(T), nullptr,
                 static_cast<const T*>(tensors.q), static_cast<const T*>(tensors.k),
                 static_cast<const T*>(tensors.v),
                 head_map(tensors.o, spec.heads, spec.seqlen_q, kHeadDim, kRows, Swizzle::b128), tensors.lse,
                 spec.seqlen_q, spec.seqlen_k, spec.scale);
}

}  // namespace flashbook::tma_epilogue
