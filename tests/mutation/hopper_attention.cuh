/// \file
/// Attention for Hopper: one warpgroup loads tiles by TMA, two multiply with WGMMA and take turns at the
/// tensor cores, and mbarriers synchronise them. Faults are planted in this kernel.
#pragma once
#include "common/attention/tensors.h"
#include "common/device/launch.h"
#include "common/ptx/barrier.h"
#include "common/ptx/convert.h"
#include "common/ptx/math.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/setmaxnreg.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"
#include "tests/mutation/head_map.h"

namespace flashbook::hopper_attention {

using T = __nv_bfloat16;
constexpr int kRows = 128;     // queries per block, 64 per consumer
constexpr int kKeys = 64;      // keys per tile
constexpr int kStages = 2;     // tiles in shared memory
constexpr int kThreads = 384;  // the producer warpgroup, then two consumers
constexpr int kConsumerThreads = 256;
constexpr int kPanel = 64;        // columns per panel: 128 bytes, the span of the swizzle
constexpr int kAtomBytes = 1024;  // 8 rows of a panel, within which the swizzle permutes chunks
constexpr float kLog2E = 1.44269504f;

/// Whose turn it is at the tensor cores. Both consumers use both barriers: one arrives, the other waits.
enum Barrier { kTurn0 = 1, kTurn1 };

template <int kHeadDim>
struct Shared {
  static constexpr int kPanels = kHeadDim / kPanel;
  T q[kPanels][kRows * kPanel];
  T k[kStages][kPanels][kKeys * kPanel];
  T v[kStages][kPanels][kKeys * kPanel];
  uint64_t q_full;
  uint64_t full[kStages];   // completed by TMA: the tile has landed
  uint64_t empty[kStages];  // completed by the consumers: the stage is free
};

__device__ inline void wait_for_turn(int consumer) {
  if (consumer == 0)
    named_barrier_sync<kTurn0, kConsumerThreads>();
  else
    named_barrier_sync<kTurn1, kConsumerThreads>();
}

__device__ inline void give_turn_to(int consumer) {
  if (consumer == 0)
    named_barrier_arrive<kTurn0, kConsumerThreads>();
  else
    named_barrier_arrive<kTurn1, kConsumerThreads>();
}

/// Returns two floats, rounded, with the first in the low half.
__device__ inline uint32_t pack(float low, float high) {
  union {
    T halves[2];
    uint32_t both;
  } packed;
  packed.halves[0] = from_float<T>(low);
  packed.halves[1] = from_float<T>(high);
  return packed.both;
}

/// One thread loads Q, and K and V tile by tile.
template <int kHeadDim>
__device__ void produce(Shared<kHeadDim>& shared, const CUtensorMap& q_map, const CUtensorMap& k_map,
                        const CUtensorMap& v_map, int first_query, int head, int tiles) {
  mbarrier_arrive_expect_tx(&shared.q_full, sizeof(shared.q));
  for (int panel = 0; panel < shared.kPanels; ++panel)
    tma_load(shared.q[panel], q_map, &shared.q_full, {panel * kPanel, first_query, head});
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % kStages;
    mbarrier_wait(&shared.empty[stage], (tile / kStages + 1) % 2);  // the first waits return immediately
    mbarrier_arrive_expect_tx(&shared.full[stage], sizeof(shared.k[stage]) + sizeof(shared.v[stage]));
    for (int panel = 0; panel < shared.kPanels; ++panel) {
      tma_load(shared.k[stage][panel], k_map, &shared.full[stage], {panel * kPanel, tile * kKeys, head});
      tma_load(shared.v[stage][panel], v_map, &shared.full[stage], {panel * kPanel, tile * kKeys, head});
    }
  }
}

/// Computes scores = Q K^T for one tile and the 64 rows of a consumer.
template <int kHeadDim>
__device__ void multiply_qk(float (&scores)[kKeys / 2], const Shared<kHeadDim>& shared, int stage,
                            int consumer) {
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kHeadDim / 16; ++step) {
    const int panel = step / 4, column = step % 4 * 16;
    const T* q = &shared.q[panel][consumer * 64 * kPanel + column];
    const T* k = &shared.k[stage][panel][column];
    wgmma<T, kKeys>(scores, wgmma_descriptor<Swizzle::b128>(q, 16, kAtomBytes),
                    wgmma_descriptor<Swizzle::b128>(k, 16, kAtomBytes), step > 0);
  }
  wgmma_commit();
  wgmma_wait<0>();
}

/// Computes sums += P V for one tile. P is in registers: the layout of the scores is that of the product's
/// operand.
template <int kHeadDim>
__device__ void multiply_pv(float (&sums)[kHeadDim / 2], const uint32_t (&p)[kKeys / 16][4],
                            const Shared<kHeadDim>& shared, int stage) {
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    const T* v = &shared.v[stage][0][step * 16 * kPanel];
    const uint64_t b = wgmma_descriptor<Swizzle::b128>(v, sizeof(shared.v[stage][0]), kAtomBytes);
    wgmma<T, kHeadDim, Major::mn>(sums, p[step], b, true);
  }
  wgmma_commit();
  wgmma_wait<0>();
}

template <int kHeadDim>
__device__ void consume(Shared<kHeadDim>& shared, T* o, float* lse, int first_query, int head, int tiles,
                        int seqlen_q, int seqlen_k, float scale_log2) {
  const int consumer = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, lane = threadIdx.x % 32;
  float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {}, sums[kHeadDim / 2] = {};
  mbarrier_wait(&shared.q_full, 0);
  if (consumer == 1) give_turn_to(0);
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % kStages;
    float scores[kKeys / 2];
    mbarrier_wait(&shared.full[stage], tile / kStages % 2);
    wait_for_turn(consumer);
    multiply_qk(scores, shared, stage, consumer);
    if (consumer == 0 || tile + 1 < tiles) give_turn_to(1 - consumer);

#pragma unroll
    for (int half = 0; half < 2; ++half) {  // floats 4 j, 4 j + 1 are in one row, 4 j + 2, 4 j + 3 in another
      float new_max = row_max[half];
#pragma unroll
      for (int j = 0; j < kKeys / 2; ++j) {
        if (j / 2 % 2 != half) continue;
        const int key = tile * kKeys + WgmmaM64<kKeys>::d(thread, j).column;
        scores[j] = key < seqlen_k ? scores[j] * scale_log2 : -INFINITY;
        new_max = fmaxf(new_max, scores[j]);
      }
      new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffff, new_max, 1));  // the four lanes of a row
      new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffff, new_max, 2));
      const float correction = exp2_approx(row_max[half] - new_max);
      row_max[half] = new_max;
      row_sum[half] *= correction;
#pragma unroll
      for (int j = 0; j < kKeys / 2; ++j) {
        if (j / 2 % 2 != half) continue;
        scores[j] = exp2_approx(scores[j] - new_max);
        row_sum[half] += scores[j];
      }
#pragma unroll
      for (int j = 0; j < kHeadDim / 2; ++j)
        if (j / 2 % 2 == half) sums[j] *= correction;
    }
    uint32_t p[kKeys / 16][4];
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) p[i / 4][i % 4] = pack(scores[2 * i], scores[2 * i + 1]);
    multiply_pv(sums, p, shared, stage);
    if (lane == 0) mbarrier_arrive(&shared.empty[stage]);  // on behalf of its warp
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = row_sum[half];
    sum += __shfl_xor_sync(0xffffffff, sum, 1);
    sum += __shfl_xor_sync(0xffffffff, sum, 2);
    const int query = first_query + consumer * 64 + WgmmaM64<kHeadDim>::d(thread, 2 * half).row;
    if (query >= seqlen_q) continue;
    const int row = head * seqlen_q + query;
#pragma unroll
    for (int j = 0; j < kHeadDim / 2; ++j)
      if (j / 2 % 2 == half)
        o[row * kHeadDim + WgmmaM64<kHeadDim>::d(thread, j).column] = from_float<T>(sums[j] / sum);
    if (lane % 4 == 0) lse[row] = row_max[half] / kLog2E + logf(sum);
  }
}

/// Grid: (queries / 128, heads).
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 1)
    attend(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
           const __grid_constant__ CUtensorMap v_map,
           T* o,        // [heads, seqlen_q, kHeadDim]
           float* lse,  // [heads, seqlen_q]
           int seqlen_q, int seqlen_k, float scale) {
  auto& shared = *dynamic_shared<Shared<kHeadDim>>();
  const int first_query = blockIdx.x * kRows, head = blockIdx.y, tiles = ceil_div(seqlen_k, kKeys);
  if (threadIdx.x == 0) {
    mbarrier_init(&shared.q_full, 1);
    name_mbarrier(&shared.q_full, "q_full");
    for (int stage = 0; stage < kStages; ++stage) {
      mbarrier_init(&shared.full[stage], 1);
      mbarrier_init(&shared.empty[stage], kConsumerThreads / 32);  // one arrival per consumer warp
      name_mbarrier(&shared.full[stage], "full", stage);
      name_mbarrier(&shared.empty[stage], "empty", stage);
    }
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are initialised

  if (threadIdx.x < 128) {
    setmaxnreg_dec<24>();
    if (threadIdx.x == 0) produce<kHeadDim>(shared, q_map, k_map, v_map, first_query, head, tiles);
  } else {
    setmaxnreg_inc<240>();
    consume<kHeadDim>(shared, o, lse, first_query, head, tiles, seqlen_q, seqlen_k, scale * kLog2E);
  }
}

template <int kHeadDim>
void run(const Spec& spec, const Tensors& tensors) {
  const dim3 grid(ceil_div(spec.seqlen_q, kRows), spec.heads);
  device::launch(attend<kHeadDim>, grid, dim3(kThreads), sizeof(Shared<kHeadDim>), nullptr,
                 head_map(tensors.q, spec.heads, spec.seqlen_q, kHeadDim, kRows, Swizzle::b128),
                 head_map(tensors.k, spec.heads, spec.seqlen_k, kHeadDim, kKeys, Swizzle::b128),
                 head_map(tensors.v, spec.heads, spec.seqlen_k, kHeadDim, kKeys, Swizzle::b128),
                 static_cast<T*>(tensors.o), tensors.lse, spec.seqlen_q, spec.seqlen_k, spec.scale);
}

}  // namespace flashbook::hopper_attention
