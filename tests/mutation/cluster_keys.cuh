/// \file
/// Attention by clusters of two blocks, each with half of the keys: rank 0 brings the queries for both by a
/// multicast, rank 1 sends its sums to rank 0 by asynchronous stores, and takes the sums of the rows from
/// there. Barriers of the other block, distributed shared memory, round after round. (Scores are small here:
/// no maximum is taken off.) A kernel for faults to be planted in.
#pragma once
#include "common/attention/tensors.h"
#include "common/device/launch.h"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/cluster.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"

namespace flashbook::cluster_keys {

constexpr int kRows = 16;     // queries of a tile: a row belongs to eight threads
constexpr int kClusters = 2;  // of a head, which share its tiles
constexpr int kThreads = 128;

/// Grid: (2 * kClusters: rank first; heads). Both blocks go through the same tiles.
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads) attend(const float* q,  // [heads, seqlen_q, kHeadDim]
                                                   const float* k,  // [heads, seqlen_k, kHeadDim]
                                                   const float* v,  // [heads, seqlen_k, kHeadDim]
                                                   float* o,        // [heads, seqlen_q, kHeadDim]
                                                   float* lse,      // [heads, seqlen_q]
                                                   int seqlen_q, int seqlen_k, float scale) {
  constexpr int kColumns = kHeadDim / 8;  // of O, that a thread owns: of_row and every eighth after it
  constexpr uint32_t kRowBytes = kHeadDim * sizeof(float);
  constexpr uint32_t kSentBytes = kRows * (kRowBytes + sizeof(float));
  constexpr int kStride = kHeadDim + 8;       // eight more, for the banks
  auto* queries = dynamic_shared<float>();    // [kRows, kStride]
  float* sent = queries + kRows * kStride;    // [kRows, kStride], of rank 1, in rank 0
  float* sent_sums = sent + kRows * kStride;  // [kRows], likewise
  float* all_sums = sent_sums + kRows;        // [kRows], in rank 0
  __shared__ uint64_t queries_full, queries_read, sums_full, sums_known;
  const int rank = cluster_rank(), head = blockIdx.y;
  const int in_tile = threadIdx.x / 8, of_row = threadIdx.x % 8;
  const int tiles = ceil_div(seqlen_q, kRows), half = ceil_div(seqlen_k, 2);
  const int first_key = rank * half, last_key = min(seqlen_k, first_key + half);
  if (threadIdx.x == 0) {
    mbarrier_init(&queries_full, 1);
    mbarrier_init(&queries_read, 2);
    mbarrier_init(&sums_full, 1);
    mbarrier_init(&sums_known, 1);
    fence_mbarrier_init();
    name_mbarrier(&queries_full, "queries_full");
    name_mbarrier(&queries_read, "queries_read");
    name_mbarrier(&sums_full, "sums_full");
    name_mbarrier(&sums_known, "sums_known");
  }
  cluster_sync();  // both blocks have begun, and know the barriers

  for (int tile = blockIdx.x / 2, round = 0; tile < tiles; tile += kClusters, ++round) {
    const uint32_t parity = round & 1;
    const int first_row = tile * kRows, rows = min(kRows, seqlen_q - first_row), row = first_row + in_tile;
    if (threadIdx.x == 0) {
      mbarrier_arrive_expect_tx(&queries_full, rows * kRowBytes);
      if (rank == 0) {
        mbarrier_wait_cluster(&queries_read, parity ^ 1);  // both are done with the tile before
        mbarrier_arrive_expect_tx(&sums_full, kSentBytes);
        for (int i = 0; i < rows; ++i)
          bulk_load_multicast(queries + i * kStride, q + (head * seqlen_q + first_row + i) * kHeadDim,
                              kRowBytes, &queries_full, 0b11);
      }
    }
    mbarrier_wait(&queries_full, parity);
    float sums[kColumns] = {}, row_sum = 0.0f;
    for (int key = first_key; in_tile < rows && key < last_key; ++key) {
      float product = 0.0f;
      for (int c = 0; c < kHeadDim; ++c)
        product += queries[in_tile * kStride + c] * k[(head * seqlen_k + key) * kHeadDim + c];
      const float weight = __expf(product * scale);
      row_sum += weight;
      for (int c = 0; c < kColumns; ++c)
        sums[c] += weight * v[(head * seqlen_k + key) * kHeadDim + of_row + 8 * c];
    }
    if (rank == 1) {
      for (int c = 0; c < kColumns; ++c)
        store_async(sent + in_tile * kStride + of_row + 8 * c, sums[c], &sums_full, 0);
      if (of_row == 0) store_async(sent_sums + in_tile, row_sum, &sums_full, 0);
      mbarrier_wait_cluster(&sums_known, parity);  // rank 0 has used what was sent, and summed up
      if (of_row == 0 && in_tile < rows) lse[head * seqlen_q + row] = logf(*mapa(all_sums + in_tile, 0));
    } else {
      mbarrier_wait(&sums_full, parity);
      const float all = row_sum + sent_sums[in_tile];
      if (of_row == 0) all_sums[in_tile] = all;
      for (int c = 0; in_tile < rows && c < kColumns; ++c) {
        const int column = of_row + 8 * c;
        o[(head * seqlen_q + row) * kHeadDim + column] = (sums[c] + sent[in_tile * kStride + column]) / all;
      }
    }
    __syncthreads();  // all threads are through with the tile
    if (threadIdx.x == 0 && rank == 0) mbarrier_arrive_at(&sums_known, 1);
    if (threadIdx.x == 0) mbarrier_arrive_at(&queries_read, 0);
  }
  cluster_sync();  // nobody reaches into this block any more
}

template <int kHeadDim>
void run(const Shape& shape, const Tensors& tensors) {
  device::launch_cluster(dim3(2), attend<kHeadDim>, dim3(2 * kClusters, shape.heads), dim3(kThreads),
                         2 * kRows * (kHeadDim + 9) * sizeof(float), nullptr,
                         static_cast<const float*>(tensors.q), static_cast<const float*>(tensors.k),
                         static_cast<const float*>(tensors.v), static_cast<float*>(tensors.o), tensors.lse,
                         shape.seqlen_q, shape.seqlen_k, shape.scale);
  device::synchronize();
}

}  // namespace flashbook::cluster_keys
