/// \file
/// Attention by pairs of blocks: one computes weights, tile after tile, and hands them over in a ring in
/// global memory; the other multiplies them by V. Acquire and release in both directions between blocks that
/// run at one time. (Scores are small here: no maximum is taken off.) A kernel for faults to be planted in.
#pragma once
#include <vector>

#include "common/attention/tensors.h"
#include "common/device/launch.h"
#include "common/ptx/atomic.h"

namespace flashbook::relay {

constexpr int kRows = 16;  // queries of a pair: a row belongs to eight threads
constexpr int kKeys = 16;  // keys of a tile
constexpr int kSlots = 2;  // tiles that are handed over and not yet used
constexpr int kThreads = 128;

/// Thread 0 waits until the other block has counted so far, and the block waits for thread 0.
__device__ inline void wait_for(const int* counted, int count) {
  if (threadIdx.x == 0)
    while (load_acquire(counted) < count) __nanosleep(100);
  __syncthreads();
}

/// The block has done its part of a tile, and thread 0 lets the other know.
__device__ inline void let_know(int* counted, int count) {
  __syncthreads();
  if (threadIdx.x == 0) store_release(counted, count);
}

/// Grid: (2: who computes weights, and who uses them; tiles of the queries; heads). Launched cooperatively.
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads) attend(const float* q,  // [heads, seqlen_q, kHeadDim]
                                                   const float* k,  // [heads, seqlen_k, kHeadDim]
                                                   const float* v,  // [heads, seqlen_k, kHeadDim]
                                                   float* ring,     // [heads, tiles, kSlots, kRows, kKeys]
                                                   int* filled,   // [heads, tiles]: tiles in the ring, zeros
                                                   int* emptied,  // [heads, tiles]: tiles used, zeros
                                                   float* o,      // [heads, seqlen_q, kHeadDim]
                                                   float* lse,    // [heads, seqlen_q]
                                                   int seqlen_q, int seqlen_k, float scale) {
  constexpr int kColumns = kHeadDim / 8;  // of O, that a thread owns
  __shared__ float weights[kRows][kKeys];
  const int pair = blockIdx.z * gridDim.y + blockIdx.y, head = blockIdx.z;
  const int in_tile = threadIdx.x / 8, of_row = threadIdx.x % 8, row = blockIdx.y * kRows + in_tile;
  const int tiles = ceil_div(seqlen_k, kKeys);
  if (blockIdx.x == 0) {
    for (int tile = 0; tile < tiles; ++tile) {
      for (int key = of_row; key < kKeys; key += 8) {
        float weight = 0.0f;
        if (row < seqlen_q && tile * kKeys + key < seqlen_k) {
          float product = 0.0f;
          for (int c = 0; c < kHeadDim; ++c)
            product += q[(head * seqlen_q + row) * kHeadDim + c] *
                       k[(head * seqlen_k + tile * kKeys + key) * kHeadDim + c];
          weight = __expf(product * scale);
        }
        weights[in_tile][key] = weight;
      }
      float* slot = ring + (pair * kSlots + tile % kSlots) * kRows * kKeys;
      wait_for(emptied + pair, tile + 1 - kSlots);  // the slot is free, and the weights are there
      for (int i = threadIdx.x; i < kRows * kKeys; i += kThreads) slot[i] = weights[i / kKeys][i % kKeys];
      let_know(filled + pair, tile + 1);
    }
    return;
  }
  float sums[kColumns] = {}, row_sum = 0.0f;
  for (int tile = 0; tile < tiles; ++tile) {
    wait_for(filled + pair, tile + 1);
    const float* slot = ring + (pair * kSlots + tile % kSlots) * kRows * kKeys;
    for (int key = 0; key < min(kKeys, seqlen_k - tile * kKeys); ++key) {
      const float weight = slot[in_tile * kKeys + key];
      row_sum += weight;
      for (int c = 0; c < kColumns; ++c)
        sums[c] += weight * v[(head * seqlen_k + tile * kKeys + key) * kHeadDim + kColumns * of_row + c];
    }
    let_know(emptied + pair, tile + 1);
  }
  if (row >= seqlen_q) return;
  for (int c = 0; c < kColumns; ++c)
    o[(head * seqlen_q + row) * kHeadDim + kColumns * of_row + c] = sums[c] / row_sum;
  if (of_row == 0) lse[head * seqlen_q + row] = logf(row_sum);
}

template <int kHeadDim>
void run(const Shape& shape, const Tensors& tensors) {
  const int tiles = ceil_div(shape.seqlen_q, kRows);
  const std::size_t pairs = std::size_t(tiles) * shape.heads;
  const std::vector<int> zeros(pairs);
  device::Buffer ring(device::Place::device, pairs * kSlots * kRows * kKeys * sizeof(float));
  device::Buffer filled(device::Place::device, pairs * sizeof(int)),
      emptied(device::Place::device, pairs * sizeof(int));
  for (device::Buffer* counted : {&filled, &emptied}) counted->upload(std::as_bytes(std::span(zeros)));
  device::launch(device::Start::cooperative, attend<kHeadDim>, dim3(2, tiles, shape.heads), dim3(kThreads), 0,
                 nullptr, static_cast<const float*>(tensors.q), static_cast<const float*>(tensors.k),
                 static_cast<const float*>(tensors.v), static_cast<float*>(ring.data()),
                 static_cast<int*>(filled.data()), static_cast<int*>(emptied.data()),
                 static_cast<float*>(tensors.o), tensors.lse, shape.seqlen_q, shape.seqlen_k, shape.scale);
  device::synchronize();  // before the buffers go
}

}  // namespace flashbook::relay
