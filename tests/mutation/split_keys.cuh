/// \file
/// Attention of one query by many blocks: each processes a part of the keys, and the last to finish, found by
/// an atomic counter, merges the parts. It uses static shared memory, warp reductions and atomics. Faults are
/// planted in this kernel.
#pragma once
#include "common/attention/tensors.h"
#include "common/device/launch.h"

namespace flashbook::split_keys {

constexpr int kKeys = 64;  // keys per block
constexpr int kWarps = 4;  // each takes every fourth key of the block
constexpr int kThreads = 128;

/// The state of the softmax over a part of the keys.
struct Partial {
  float max, sum;
};

__device__ inline float warp_sum(float value) {
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffff, value, distance);
  return value;
}

/// Grid: (parts of the keys, queries * heads).
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads) attend(const float* q,       // [heads, seqlen_q, kHeadDim]
                                                   const float* k,       // [heads, seqlen_k, kHeadDim]
                                                   const float* v,       // [heads, seqlen_k, kHeadDim]
                                                   float* o,             // [heads, seqlen_q, kHeadDim]
                                                   float* lse,           // [heads, seqlen_q]
                                                   Partial* partials,    // [heads, seqlen_q, parts]
                                                   float* partial_sums,  // [heads, seqlen_q, parts, kHeadDim]
                                                   unsigned* finished,   // [heads, seqlen_q], zeros
                                                   int seqlen_q, int seqlen_k, float scale) {
  constexpr int kColumns = kHeadDim / 32;  // columns per lane: lane, lane + 32, ...
  __shared__ Partial warp_partials[kWarps];
  __shared__ float warp_sums[kWarps][kHeadDim];
  __shared__ bool is_last;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int part = blockIdx.x, parts = gridDim.x, row = blockIdx.y;
  const float* keys = k + row / seqlen_q * seqlen_k * kHeadDim;
  const float* values = v + row / seqlen_q * seqlen_k * kHeadDim;

  float query[kColumns], sums[kColumns] = {};
  for (int c = 0; c < kColumns; ++c) query[c] = q[row * kHeadDim + lane + 32 * c] * scale;
  Partial own = {-INFINITY, 0.0f};
  for (int key = part * kKeys + warp; key < min((part + 1) * kKeys, seqlen_k); key += kWarps) {
    float product = 0.0f;
    for (int c = 0; c < kColumns; ++c) product += query[c] * keys[key * kHeadDim + lane + 32 * c];
    const float score = warp_sum(product);
    const float new_max = fmaxf(own.max, score);
    const float correction = __expf(own.max - new_max), p = __expf(score - new_max);
    own = {new_max, own.sum * correction + p};
    for (int c = 0; c < kColumns; ++c)
      sums[c] = sums[c] * correction + p * values[key * kHeadDim + lane + 32 * c];
  }
  if (lane == 0) warp_partials[warp] = own;
  for (int c = 0; c < kColumns; ++c) warp_sums[warp][lane + 32 * c] = sums[c];
  __syncthreads();  // the four warps' parts are complete

  Partial all = {-INFINITY, 0.0f};
  for (const Partial& partial : warp_partials) all.max = fmaxf(all.max, partial.max);
  for (const Partial& partial : warp_partials) all.sum += partial.sum * __expf(partial.max - all.max);
  for (int column = threadIdx.x; column < kHeadDim; column += kThreads) {
    float sum = 0.0f;
    for (int w = 0; w < kWarps; ++w) sum += warp_sums[w][column] * __expf(warp_partials[w].max - all.max);
    partial_sums[(row * parts + part) * kHeadDim + column] = sum;
  }
  if (threadIdx.x == 0) partials[row * parts + part] = all;

  __threadfence();  // orders this thread's writes before the count
  __syncthreads();  // all threads have written and fenced
  if (threadIdx.x == 0) is_last = atomicAdd(&finished[row], 1u) == unsigned(parts - 1);
  __syncthreads();  // thread 0 has stored is_last
  if (!is_last) return;
  __threadfence();  // orders the reads below after the count

  all = {-INFINITY, 0.0f};
  for (int i = 0; i < parts; ++i) all.max = fmaxf(all.max, partials[row * parts + i].max);
  for (int i = 0; i < parts; ++i)
    all.sum += partials[row * parts + i].sum * __expf(partials[row * parts + i].max - all.max);
  for (int column = threadIdx.x; column < kHeadDim; column += kThreads) {
    float sum = 0.0f;
    for (int i = 0; i < parts; ++i)
      sum += partial_sums[(row * parts + i) * kHeadDim + column] *
             __expf(partials[row * parts + i].max - all.max);
    o[row * kHeadDim + column] = sum / all.sum;
  }
  if (threadIdx.x == 0) lse[row] = all.max + logf(all.sum);
}

template <int kHeadDim>
void run(const Spec& spec, const Tensors& tensors) {
  const int parts = ceil_div(spec.seqlen_k, kKeys);
  const auto rows = std::size_t(spec.q_rows());
  device::Buffer partials(device::Place::device, rows * parts * sizeof(Partial));
  device::Buffer partial_sums(device::Place::device, rows * parts * kHeadDim * sizeof(float));
  device::Buffer finished(device::Place::device, rows * sizeof(unsigned));
  const std::vector<unsigned> zeros(rows);
  finished.upload(std::as_bytes(std::span(zeros)));
  device::launch(attend<kHeadDim>, dim3(parts, rows), dim3(kThreads), 0, nullptr,
                 static_cast<const float*>(tensors.q), static_cast<const float*>(tensors.k),
                 static_cast<const float*>(tensors.v), static_cast<float*>(tensors.o), tensors.lse,
                 static_cast<Partial*>(partials.data()), static_cast<float*>(partial_sums.data()),
                 static_cast<unsigned*>(finished.data()), spec.seqlen_q, spec.seqlen_k, spec.scale);
  device::synchronize();  // before the buffers are freed
}

}  // namespace flashbook::split_keys
