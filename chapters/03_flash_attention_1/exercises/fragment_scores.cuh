/// \file
/// Exercise ch03-fragments: a tile of scores by nvcuda::wmma, after a widely copied snippet.
#pragma once
#include "common/device/kernel.h"
#include "common/ptx/wmma.h"

namespace flashbook::fa1 {

constexpr int kSide = 16;  // rows and columns of a fragment

/// Copies kSide rows into shared memory, where a row begins every kStride elements.
template <typename T, int kHeadDim, int kStride>
__device__ void copy_rows(T (*tile)[kStride], const T* rows) {  // [kSide, kHeadDim]
  for (int i = threadIdx.x; i < kSide * kHeadDim; i += blockDim.x) tile[i / kHeadDim][i % kHeadDim] = rows[i];
}

/// scores = Q K^T, with a block of one warp for 16 queries and 16 keys. Grid: (keys / 16, queries / 16). In
/// shared memory, rows are kStride elements apart, including padding.
template <typename T, int kHeadDim, int kStride>
__global__ void fragment_scores(const T* q,       // [queries, kHeadDim]
                                const T* k,       // [keys, kHeadDim]
                                float* scores) {  // [queries, keys]
  __shared__ __align__(128) T q_tile[kSide][kStride], k_tile[kSide][kStride];
  const int first_query = int(blockIdx.y) * kSide, first_key = int(blockIdx.x) * kSide;
  const int keys = int(gridDim.x) * kSide;
  copy_rows<T, kHeadDim>(q_tile, q + int64_t(first_query) * kHeadDim);
  copy_rows<T, kHeadDim>(k_tile, k + int64_t(first_key) * kHeadDim);
  __syncwarp();  // both tiles are complete: the block is one warp
  // BEGIN EXERCISE ch03-fragments: the snippet that goes round
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, T, nvcuda::wmma::row_major> q_fragment;
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, T, nvcuda::wmma::col_major> k_fragment;
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sums;
  nvcuda::wmma::fill_fragment(sums, 0.0f);
  nvcuda::wmma::load_matrix_sync(q_fragment, &q_tile[0][0], 16);
  nvcuda::wmma::load_matrix_sync(k_fragment, &k_tile[0][0], 16);
  nvcuda::wmma::mma_sync(sums, q_fragment, k_fragment, sums);
  nvcuda::wmma::store_matrix_sync(scores + int64_t(first_query) * keys + first_key, sums, 16,
                                  nvcuda::wmma::mem_row_major);
  // END EXERCISE ch03-fragments
}

}  // namespace flashbook::fa1
