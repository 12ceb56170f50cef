/// \file
/// Attention whose blocks add their parts of O in turn, so that the order of additions, and with it every
/// bit of the result, is the same each time: each waits until the one before it has said that it is done. The
/// last loads the sums by TMA and divides. Vector additions, acquire and release, the proxy fence for global
/// memory. (Scores are small here: no maximum is taken off.) A kernel for faults to be planted in.
#pragma once
#include <vector>

#include "common/attention/tensors.h"
#include "common/device/launch.h"
#include "common/ptx/atomic.h"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"

namespace flashbook::turns {

constexpr int kRows = 16;  // queries of a block: a row belongs to eight threads
constexpr int kKeys = 32;  // keys of a block
constexpr int kThreads = 128;

/// Grid: (parts of the keys, tiles of the queries, heads).
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads) attend(const float* q,   // [heads, seqlen_q, kHeadDim]
                                                   const float* k,   // [heads, seqlen_k, kHeadDim]
                                                   const float* v,   // [heads, seqlen_k, kHeadDim]
                                                   float* sums,      // [heads, tiles, kRows, kHeadDim], zeros
                                                   float* row_sums,  // [heads, tiles, kRows], zeros
                                                   int* turn,        // [heads, tiles], zeros
                                                   float* o,         // [heads, seqlen_q, kHeadDim]
                                                   float* lse,       // [heads, seqlen_q]
                                                   int seqlen_q, int seqlen_k, float scale) {
  constexpr int kGroups = kHeadDim / 32;  // of four columns that a thread has: 4 * of_row, and 32 further on
  constexpr int kStride = kKeys + 8;      // eight more, for the banks
  auto* tile = dynamic_shared<float>();   // [kRows, kHeadDim]
  float* weights = tile + kRows * kHeadDim;  // [kRows, kStride]
  __shared__ uint64_t full;
  const int part = blockIdx.x, first_row = blockIdx.y * kRows, head = blockIdx.z;
  const int tile_number = head * gridDim.y + blockIdx.y;
  const int in_tile = threadIdx.x / 8, of_row = threadIdx.x % 8, row = first_row + in_tile;
  const int keys_here = min(kKeys, seqlen_k - part * kKeys);
  const float* keys = k + (head * seqlen_k + part * kKeys) * kHeadDim;
  const float* values = v + (head * seqlen_k + part * kKeys) * kHeadDim;

  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
    name_mbarrier(&full, "full");
  }
  for (int key = of_row; key < kKeys; key += 8) {
    float weight = 0.0f;
    if (row < seqlen_q && key < keys_here) {
      float product = 0.0f;
      for (int c = 0; c < kHeadDim; ++c)
        product += q[(head * seqlen_q + row) * kHeadDim + c] * keys[key * kHeadDim + c];
      weight = __expf(product * scale);
    }
    weights[in_tile * kStride + key] = weight;
  }
  __syncthreads();  // the weights are there

  float outputs[kGroups][4] = {}, sum = 0.0f;
  for (int key = 0; key < keys_here; ++key) {
    const float weight = weights[in_tile * kStride + key];
    sum += weight;
    for (int group = 0; group < kGroups; ++group)
      for (int c = 0; c < 4; ++c)
        outputs[group][c] += weight * values[key * kHeadDim + 32 * group + 4 * of_row + c];
  }

  if (threadIdx.x == 0)
    while (load_acquire(turn + tile_number) != part) __nanosleep(100);
  __syncthreads();  // it is this block's turn
  float* mine = sums + (tile_number * kRows + in_tile) * kHeadDim + 4 * of_row;
  for (int group = 0; group < kGroups; ++group) {
    const float* four = outputs[group];
    red_add(reinterpret_cast<float4*>(mine + 32 * group), make_float4(four[0], four[1], four[2], four[3]));
  }
  if (of_row == 0) row_sums[tile_number * kRows + in_tile] += sum;
  fence_proxy_async_global();  // TMA of the last block will see what this thread has added
  __syncthreads();             // every thread has added
  if (threadIdx.x == 0) store_release(turn + tile_number, part + 1);
  if (part != int(gridDim.x) - 1) return;

  if (threadIdx.x == 0) {
    constexpr uint32_t kBytes = kRows * kHeadDim * sizeof(float);
    mbarrier_arrive_expect_tx(&full, kBytes);
    bulk_load(tile, sums + tile_number * kRows * kHeadDim, kBytes, &full);
  }
  mbarrier_wait(&full, 0);  // the sums are there
  if (row >= seqlen_q) return;
  const float all = row_sums[tile_number * kRows + in_tile];
  for (int group = 0; group < kGroups; ++group) {
    const int column = 32 * group + 4 * of_row;
    const float4 sum_of = *reinterpret_cast<const float4*>(tile + in_tile * kHeadDim + column);
    *reinterpret_cast<float4*>(o + (head * seqlen_q + row) * kHeadDim + column) =
        make_float4(sum_of.x / all, sum_of.y / all, sum_of.z / all, sum_of.w / all);
  }
  if (of_row == 0) lse[head * seqlen_q + row] = logf(all);
}

template <int kHeadDim>
void run(const Shape& shape, const Tensors& tensors) {
  const int parts = ceil_div(shape.seqlen_k, kKeys), tiles = ceil_div(shape.seqlen_q, kRows);
  const std::size_t all_tiles = std::size_t(tiles) * shape.heads;
  const auto zeros = [](std::size_t count) {
    device::Buffer buffer(device::Place::device, count * sizeof(float));
    const std::vector<float> values(count);
    buffer.upload(std::as_bytes(std::span(values)));
    return buffer;
  };
  const device::Buffer sums = zeros(all_tiles * kRows * kHeadDim);
  const device::Buffer row_sums = zeros(all_tiles * kRows);
  const device::Buffer turn = zeros(all_tiles);
  device::launch(attend<kHeadDim>, dim3(parts, tiles, shape.heads), dim3(kThreads),
                 kRows * (kKeys + 8 + kHeadDim) * sizeof(float), nullptr,
                 static_cast<const float*>(tensors.q), static_cast<const float*>(tensors.k),
                 static_cast<const float*>(tensors.v), static_cast<float*>(sums.data()),
                 static_cast<float*>(row_sums.data()), static_cast<int*>(turn.data()),
                 static_cast<float*>(tensors.o), tensors.lse, shape.seqlen_q, shape.seqlen_k, shape.scale);
  device::synchronize();  // before the buffers go
}

}  // namespace flashbook::turns
