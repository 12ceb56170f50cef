/// \file
/// Attention whose blocks sum their parts of O in global memory by TMA: each block processes a few keys for a
/// tile of queries, and the last one to finish divides. An earlier launch, which the second overlaps,
/// computes the maxima. It uses bulk copies, reduce-adds, dependent launches, release and acquire. Faults are
/// planted in this kernel.
#pragma once
#include <vector>

#include "common/attention/tensors.h"
#include "common/device/launch.h"
#include "common/device/tensor_map.h"
#include "common/ptx/atomic.h"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/dependent_launch.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"

namespace flashbook::bulk_sums {

constexpr int kRows = 16;  // queries per block, four per warp
constexpr int kKeys = 32;  // keys per block, one per lane
constexpr int kThreads = 128;
constexpr unsigned kAll = 0xffffffff;

/// Maps floats to unsigned numbers in the same order.
__device__ inline unsigned ordered(float x) {
  const unsigned bits = __float_as_uint(x);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ inline float unordered(unsigned x) { return __uint_as_float(x >> 31 ? x & 0x7fffffffu : ~x); }

template <int kHeadDim>
__device__ inline float score(const float* query, const float* key, float scale) {
  float product = 0.0f;
  for (int column = 0; column < kHeadDim; ++column) product += query[column] * key[column];
  return product * scale;
}

/// Grid of both kernels: (parts of the keys, tiles of the queries, heads).
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads) find_maxima(const float* q,    // [heads, seqlen_q, kHeadDim]
                                                        const float* k,    // [heads, seqlen_k, kHeadDim]
                                                        unsigned* maxima,  // [heads, seqlen_q], zeros
                                                        int seqlen_q, int seqlen_k, float scale) {
  let_dependents_launch();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, head = blockIdx.z;
  const int key = blockIdx.x * kKeys + lane;
  for (int i = 0; i < kRows / 4; ++i) {
    const int row = blockIdx.y * kRows + warp * (kRows / 4) + i;
    if (row >= seqlen_q) break;
    unsigned mine = 0;
    if (key < seqlen_k)
      mine = ordered(score<kHeadDim>(q + (head * seqlen_q + row) * kHeadDim,
                                     k + (head * seqlen_k + key) * kHeadDim, scale));
    const unsigned best = __reduce_max_sync(kAll, mine);
    if (lane == 0) atomicMax(maxima + head * seqlen_q + row, best);
  }
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    attend(const float* q,                                // [heads, seqlen_q, kHeadDim]
           const float* k,                                // [heads, seqlen_k, kHeadDim]
           const float* v,                                // [heads, seqlen_k, kHeadDim]
           const unsigned* maxima,                        // [heads, seqlen_q]
           const __grid_constant__ CUtensorMap sums_map,  // the map of `sums`, with boxes of one tile
           float* sums,                                   // [heads, tiles, kRows, kHeadDim], zeros
           float* row_sums,                               // [heads, tiles, kRows], zeros
           unsigned* finished,                            // [heads, tiles], zeros
           float* o,                                      // [heads, seqlen_q, kHeadDim]
           float* lse,                                    // [heads, seqlen_q]
           int seqlen_q, int seqlen_k, float scale) {
  auto* keys = dynamic_shared<float>();     // [kKeys, kHeadDim]
  float* values = keys + kKeys * kHeadDim;  // [kKeys, kHeadDim]
  float* tile = values + kKeys * kHeadDim;  // [kRows, kHeadDim]
  float* tile_sums = tile + kRows * kHeadDim;
  __shared__ uint64_t full;
  __shared__ bool is_last;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int part = blockIdx.x, first_row = blockIdx.y * kRows, head = blockIdx.z;
  const int tile_number = head * gridDim.y + blockIdx.y;
  const int keys_here = min(kKeys, seqlen_k - part * kKeys);

  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
    name_mbarrier(&full, "full");
    const uint32_t bytes = keys_here * kHeadDim * sizeof(float);
    mbarrier_arrive_expect_tx(&full, 2 * bytes);
    bulk_load(keys, k + (head * seqlen_k + part * kKeys) * kHeadDim, bytes, &full);
    bulk_load(values, v + (head * seqlen_k + part * kKeys) * kHeadDim, bytes, &full);
  }
  __syncthreads();           // the barrier is initialised
  wait_for_launch_before();  // the maxima are complete
  mbarrier_wait(&full, 0);   // keys and values have landed

  for (int i = 0; i < kRows / 4; ++i) {
    const int in_tile = warp * (kRows / 4) + i, row = first_row + in_tile;
    float query[kHeadDim / 32] = {}, outputs[kHeadDim / 32] = {}, sum = 0.0f, max = 0.0f;
    if (row < seqlen_q) {
      for (int c = 0; c < kHeadDim / 32; ++c)
        query[c] = q[(head * seqlen_q + row) * kHeadDim + lane + 32 * c];
      max = unordered(maxima[head * seqlen_q + row]);
    }
    for (int key = 0; key < keys_here; ++key) {
      float product = 0.0f;
      for (int c = 0; c < kHeadDim / 32; ++c) product += query[c] * keys[key * kHeadDim + lane + 32 * c];
      for (int distance = 16; distance > 0; distance /= 2)
        product += __shfl_xor_sync(kAll, product, distance);
      const float weight = __expf(product * scale - max);
      sum += weight;
      for (int c = 0; c < kHeadDim / 32; ++c) outputs[c] += weight * values[key * kHeadDim + lane + 32 * c];
    }
    for (int c = 0; c < kHeadDim / 32; ++c) tile[in_tile * kHeadDim + lane + 32 * c] = outputs[c];
    if (lane == 0) tile_sums[in_tile] = sum;
  }
  fence_proxy_async();  // makes this thread's writes visible to TMA
  __syncthreads();      // every row is written and fenced
  if (threadIdx.x == 0) {
    tma_reduce_add(sums_map, tile, {0, 0, tile_number});
    bulk_reduce_add(row_sums + tile_number * kRows, tile_sums, kRows * sizeof(float));
    tma_store_commit();
    tma_store_wait<0>();  // the sums are in memory before the block counts as finished
    is_last = atomic_add_acq_rel(finished + tile_number, 1u) == gridDim.x - 1;
  }
  __syncthreads();  // thread 0 has stored is_last
  if (!is_last) return;

  const int rows = __syncthreads_count(threadIdx.x < kRows && first_row + threadIdx.x < unsigned(seqlen_q));
  for (int i = threadIdx.x; i < rows * kHeadDim; i += kThreads)
    o[(head * seqlen_q + first_row) * kHeadDim + i] =
        sums[tile_number * kRows * kHeadDim + i] / row_sums[tile_number * kRows + i / kHeadDim];
  if (threadIdx.x < unsigned(rows))
    lse[head * seqlen_q + first_row + threadIdx.x] =
        unordered(maxima[head * seqlen_q + first_row + threadIdx.x]) +
        logf(row_sums[tile_number * kRows + threadIdx.x]);
}

template <int kHeadDim>
void run(const Spec& spec, const Tensors& tensors) {
  const int parts = ceil_div(spec.seqlen_k, kKeys), tiles = ceil_div(spec.seqlen_q, kRows);
  const std::size_t all_tiles = std::size_t(tiles) * spec.heads;
  const auto zeros = [](std::size_t count) {
    device::Buffer buffer(device::Place::device, count * sizeof(float));
    const std::vector<float> values(count);
    buffer.upload(std::as_bytes(std::span(values)));
    return buffer;
  };
  const device::Buffer maxima = zeros(std::size_t(spec.q_rows()));
  const device::Buffer sums = zeros(all_tiles * kRows * kHeadDim);
  const device::Buffer row_sums = zeros(all_tiles * kRows);
  const device::Buffer finished = zeros(all_tiles);
  const CUtensorMap sums_map = device::tensor_map({.dtype = DType::f32,
                                                   .base = sums.data(),
                                                   .size = {kHeadDim, kRows, all_tiles},
                                                   .stride = {kHeadDim * 4, kRows * kHeadDim * 4},
                                                   .box = {kHeadDim, kRows, 1}});
  const dim3 grid(parts, tiles, spec.heads);
  constexpr std::size_t kSharedBytes = ((2 * kKeys + kRows) * kHeadDim + kRows) * sizeof(float);
  device::launch(find_maxima<kHeadDim>, grid, dim3(kThreads), 0, nullptr,
                 static_cast<const float*>(tensors.q), static_cast<const float*>(tensors.k),
                 static_cast<unsigned*>(maxima.data()), spec.seqlen_q, spec.seqlen_k, spec.scale);
  device::launch_dependent(attend<kHeadDim>, grid, dim3(kThreads), kSharedBytes, nullptr,
                           static_cast<const float*>(tensors.q), static_cast<const float*>(tensors.k),
                           static_cast<const float*>(tensors.v), static_cast<const unsigned*>(maxima.data()),
                           sums_map, static_cast<float*>(sums.data()), static_cast<float*>(row_sums.data()),
                           static_cast<unsigned*>(finished.data()), static_cast<float*>(tensors.o),
                           tensors.lse, spec.seqlen_q, spec.seqlen_k, spec.scale);
  device::synchronize();  // before the buffers are freed
}

}  // namespace flashbook::bulk_sums
