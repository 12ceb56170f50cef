/// \file
/// Attention with roles: four warps load tiles, four compute, and named barriers pass the stages between
/// them. Faults are planted in this kernel.
#pragma once
#include "common/attention/tensors.h"
#include "common/device/launch.h"
#include "common/ptx/barrier.h"

namespace flashbook::named_barriers {

constexpr int kRows = 128;     // queries per block, one per consumer
constexpr int kKeys = 32;      // keys per tile
constexpr int kStages = 2;     // tiles in shared memory
constexpr int kThreads = 256;  // 128 producers, then 128 consumers

/// The barriers besides __syncthreads, which is 0. Each counts all 256 threads: one half arrives, the other
/// waits.
enum Barrier { kFull0 = 1, kFull1, kEmpty0, kEmpty1 };

template <int kHeadDim>
struct Shared {
  float k[kStages][kKeys][kHeadDim];
  float v[kStages][kKeys][kHeadDim];
};

// A barrier's number is part of the instruction, hence the branches.

__device__ inline void wait_until_full(int stage) {
  if (stage == 0)
    named_barrier_sync<kFull0, kThreads>();
  else
    named_barrier_sync<kFull1, kThreads>();
}

__device__ inline void signal_full(int stage) {
  if (stage == 0)
    named_barrier_arrive<kFull0, kThreads>();
  else
    named_barrier_arrive<kFull1, kThreads>();
}

__device__ inline void wait_until_empty(int stage) {
  if (stage == 0)
    named_barrier_sync<kEmpty0, kThreads>();
  else
    named_barrier_sync<kEmpty1, kThreads>();
}

__device__ inline void signal_empty(int stage) {
  if (stage == 0)
    named_barrier_arrive<kEmpty0, kThreads>();
  else
    named_barrier_arrive<kEmpty1, kThreads>();
}

/// Loads K and V tile by tile.
template <int kHeadDim>
__device__ void produce(Shared<kHeadDim>& shared, const float* k, const float* v, int seqlen_k) {
  for (int first_key = 0, tile = 0; first_key < seqlen_k; first_key += kKeys, ++tile) {
    const int stage = tile % kStages;
    if (tile >= kStages) wait_until_empty(stage);
    for (int i = threadIdx.x; i < kKeys * kHeadDim; i += kThreads / 2) {
      const int key = i / kHeadDim, column = i % kHeadDim;
      if (first_key + key >= seqlen_k) break;
      shared.k[stage][key][column] = k[(first_key + key) * kHeadDim + column];
      shared.v[stage][key][column] = v[(first_key + key) * kHeadDim + column];
    }
    signal_full(stage);
  }
}

/// Grid: (queries / 128, heads).
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 1) attend(const float* q,  // [heads, seqlen_q, kHeadDim]
                                                      const float* k,  // [heads, seqlen_k, kHeadDim]
                                                      const float* v,  // [heads, seqlen_k, kHeadDim]
                                                      float* o,        // [heads, seqlen_q, kHeadDim]
                                                      float* lse,      // [heads, seqlen_q]
                                                      int seqlen_q, int seqlen_k, float scale) {
  auto& shared = *dynamic_shared<Shared<kHeadDim>>();
  const int head = blockIdx.y, tiles = ceil_div(seqlen_k, kKeys);
  k += head * seqlen_k * kHeadDim;
  v += head * seqlen_k * kHeadDim;
  if (threadIdx.x < kThreads / 2) return produce<kHeadDim>(shared, k, v, seqlen_k);

  // Threads past the last query repeat it, since every thread must reach the barriers.
  const int own_query = blockIdx.x * kRows + threadIdx.x - kThreads / 2;
  const int row = head * seqlen_q + min(own_query, seqlen_q - 1);
  float query[kHeadDim], sums[kHeadDim] = {}, row_max = -INFINITY, row_sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kHeadDim; ++c) query[c] = q[row * kHeadDim + c] * scale;

  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % kStages;
    wait_until_full(stage);
    for (int key = 0; key < min(kKeys, seqlen_k - tile * kKeys); ++key) {
      float score = 0.0f;
#pragma unroll
      for (int c = 0; c < kHeadDim; ++c) score += query[c] * shared.k[stage][key][c];
      const float new_max = fmaxf(row_max, score);
      const float correction = __expf(row_max - new_max), p = __expf(score - new_max);
      row_max = new_max;
      row_sum = row_sum * correction + p;
#pragma unroll
      for (int c = 0; c < kHeadDim; ++c) sums[c] = sums[c] * correction + p * shared.v[stage][key][c];
    }
    if (tile + kStages < tiles) signal_empty(stage);  // only as often as the producers wait
  }

  if (own_query >= seqlen_q) return;
#pragma unroll
  for (int c = 0; c < kHeadDim; ++c) o[row * kHeadDim + c] = sums[c] / row_sum;
  lse[row] = row_max + logf(row_sum);
}

template <int kHeadDim>
void run(const Spec& spec, const Tensors& tensors) {
  const dim3 grid(ceil_div(spec.seqlen_q, kRows), spec.heads);
  device::launch(attend<kHeadDim>, grid, dim3(kThreads), sizeof(Shared<kHeadDim>), nullptr,
                 static_cast<const float*>(tensors.q), static_cast<const float*>(tensors.k),
                 static_cast<const float*>(tensors.v), static_cast<float*>(tensors.o), tensors.lse,
                 spec.seqlen_q, spec.seqlen_k, spec.scale);
}

}  // namespace flashbook::named_barriers
