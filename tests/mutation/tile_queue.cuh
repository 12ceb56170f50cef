/// \file
/// Attention by blocks that take tiles from a counter until none is left. It uses a tile counter in a device
/// variable, one mbarrier per row of K, plain stores and bulk copies to the same tile, and bytes in global
/// memory. Faults are planted in this kernel.
#pragma once
#include <algorithm>
#include <vector>

#include "common/attention/tensors.h"
#include "common/device/launch.h"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"

namespace flashbook::tile_queue {

constexpr int kRows = 8;  // queries per tile; eight threads per row
constexpr int kThreads = 8 * kRows;
constexpr int kKeys = 40;              // keys per iteration
constexpr int kMine = kKeys / 8;       // keys per thread
constexpr unsigned kAll = 0xffffffff;  // lanes

__device__ unsigned tiles_taken, blocks_done;  // 0 between launches

__device__ inline float largest_of(const float* values, int count) {
  float largest = -INFINITY;
  for (int i = 0; i < count; ++i) largest = fmaxf(largest, values[i]);
  return largest;
}

/// Persistent, with any number of blocks.
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads) attend(const float* q,       // [heads, seqlen_q, kHeadDim]
                                                   const float* k,       // [heads, seqlen_k, kHeadDim]
                                                   const float* v,       // [heads, seqlen_k, kHeadDim]
                                                   float* o,             // [heads, seqlen_q, kHeadDim]
                                                   float* lse,           // [heads, seqlen_q]
                                                   unsigned char* even,  // [heads, seqlen_q]
                                                   int* even_of_tile,    // [heads, tiles]
                                                   int heads, int seqlen_q, int seqlen_k, float scale) {
  constexpr int kStride = kHeadDim + 4;   // four more, for the banks
  constexpr int kColumns = kHeadDim / 8;  // columns of O per thread
  auto* keys = dynamic_shared<float>();   // [kKeys, kStride]
  __shared__ uint64_t full[kKeys];        // row `key` of the keys has landed
  __shared__ int next;
  const int thread = threadIdx.x, in_tile = thread / 8, of_row = thread % 8, lane = thread % 32;
  const int tiles_of_head = ceil_div(seqlen_q, kRows), tiles = heads * tiles_of_head;
  if (thread < kKeys) mbarrier_init(&full[thread], 1);
  fence_mbarrier_init();
  __syncthreads();  // the barriers are initialised
  int parity = 0;
  for (int tile = blockIdx.x; tile < tiles;) {
    const int head = tile / tiles_of_head, row = tile % tiles_of_head * kRows + in_tile;
    const float* query = q + (head * seqlen_q + min(row, seqlen_q - 1)) * kHeadDim;
    float row_max = -INFINITY, row_sum = 0.0f, sums[kColumns] = {};
    for (int first_key = 0; first_key < seqlen_k; first_key += kKeys) {
      const int here = min(kKeys, seqlen_k - first_key);
      const uint64_t visible = (uint64_t(1) << here) - 1;  // a bit for each key
      fence_proxy_async();  // the copies may overwrite what this thread has stored
      __syncthreads();      // every thread is done with the previous keys
      const float* rows = k + (head * seqlen_k + first_key) * kHeadDim;
      if (thread < here) {
        mbarrier_arrive_expect_tx(&full[thread], kHeadDim * sizeof(float));
        bulk_load(keys + thread * kStride, rows + thread * kHeadDim, kHeadDim * sizeof(float), &full[thread]);
      } else if (thread < kKeys) {
        for (int c = 0; c < kHeadDim; ++c) keys[thread * kStride + c] = 0.0f;
        mbarrier_arrive(&full[thread]);
      }
      float scores[kMine];
      for (int i = 0; i < kMine; ++i) {
        const int key = 8 * i + of_row;
        mbarrier_wait(&full[key], parity);
        float product = 0.0f;
        for (int c = 0; c < kHeadDim; ++c) product += query[c] * keys[key * kStride + c];
        scores[i] = visible >> key & 1 ? product * scale : -INFINITY;
      }
      parity ^= 1;
      float new_max = fmaxf(row_max, largest_of(scores, kMine));
      for (int distance = 1; distance < 8; distance *= 2)
        new_max = fmaxf(new_max, __shfl_xor_sync(kAll, new_max, distance));
      const float correction = __expf(row_max - new_max);
      row_max = new_max;
      row_sum *= correction;
      for (float& sum : sums) sum *= correction;
      for (int i = 0; i < kMine; ++i) scores[i] = __expf(scores[i] - new_max);
      for (int key = 0; key < here; ++key) {
        const float weight = __shfl_sync(kAll, scores[key / 8], lane / 8 * 8 + key % 8);
        const float* value = v + (head * seqlen_k + first_key + key) * kHeadDim + kColumns * of_row;
        row_sum += weight;
        for (int c = 0; c < kColumns; c += 4) {
          const float4 four = *reinterpret_cast<const float4*>(value + c);
          sums[c] += weight * four.x;
          sums[c + 1] += weight * four.y;
          sums[c + 2] += weight * four.z;
          sums[c + 3] += weight * four.w;
        }
      }
    }
    if (row < seqlen_q) {
      for (int c = 0; c < kColumns; ++c)
        o[(head * seqlen_q + row) * kHeadDim + kColumns * of_row + c] = sums[c] / row_sum;
      if (of_row == 0) lse[head * seqlen_q + row] = row_max + logf(row_sum);
      if (of_row == 0) even[head * seqlen_q + row] = (unsigned char)(int(row_sum) % 2 == 0);
    }
    if (thread == 0) next = gridDim.x + atomicAdd(&tiles_taken, 1u);
    __syncthreads();  // the next tile is known, and this one's bytes are written
    if (thread == 32) {
      even_of_tile[tile] = 0;
      for (int i = row - in_tile; i < min(row - in_tile + kRows, seqlen_q); ++i)
        even_of_tile[tile] += even[head * seqlen_q + i];
    }
    tile = next;
    __syncthreads();  // every thread has read it
  }
  if (thread == 0) {
    __threadfence();
    if (atomicAdd(&blocks_done, 1u) == gridDim.x - 1) tiles_taken = blocks_done = 0;
  }
}

template <int kHeadDim>
void run(const Spec& spec, const Tensors& tensors) {
  const std::size_t rows = std::size_t(spec.q_rows());
  const device::Buffer even(device::Place::device, rows), of_tiles(device::Place::device, rows * sizeof(int));
  int* even_of_tile = static_cast<int*>(of_tiles.data());
  const std::size_t shared_bytes = kKeys * (kHeadDim + 4) * sizeof(float);
  device::launch(attend<kHeadDim>, dim3(3), dim3(kThreads), shared_bytes, nullptr,
                 static_cast<const float*>(tensors.q), static_cast<const float*>(tensors.k),
                 static_cast<const float*>(tensors.v), static_cast<float*>(tensors.o), tensors.lse,
                 static_cast<unsigned char*>(even.data()), even_of_tile, spec.heads, spec.seqlen_q,
                 spec.seqlen_k, spec.scale);
  device::synchronize();  // before the buffers are freed
}

}  // namespace flashbook::tile_queue
