//| # A panel of V and two products
//|
//| This is the first kernel that looks like attention: $O = PV$ for 64 rows of weights, which the threads
//| hold in registers, and 32 keys, which TMA loads. The sum runs over the keys, and one `wgmma` takes 16 of
//| them, so there are two.
//|
//| * **The panel.** TMA writes each key as a row of 64 columns. That is 128 bytes, the span of the widest
//|   swizzle: piece $p$ of key $k$, 16 bytes, goes to place $p \oplus (k \bmod 8)$. No thread touches the
//|   panel, so no thread computes a swizzle. The tensor map and the descriptor both name it, and they must
//|   agree.
//| * **The descriptor.** Neighbours in a row belong to different columns of $O$, not to different terms of
//|   its sums. The flag for that is `Major::mn`. The next 8 keys, an *atom* further on, are 1024 bytes
//|   away: the stride. The second product begins 16 keys, or 2048 bytes, after the first.
//| * **P.** Each thread holds the weights at the places where `wgmma` would have left it scores, two per
//|   register. In attention they *are* the previous product's scores, so nothing has to be loaded.
//|
//| **Break it.** Advance the descriptor by 32 bytes, 16 columns of a row: right for $K$, past the atom here.
#pragma once
#include "common/ptx/convert.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"
#include "common/ptx/wgmma_layout.h"

namespace flashbook::fa3 {

constexpr int kRampKeys = 32, kRampDims = 64;          // rows and columns of V
constexpr int kRampPanel = kRampKeys * kRampDims * 2;  ///< bytes of the panel

/// out = p v with p [64, kRampKeys] and a map of v [kRampKeys, kRampDims], f16. One block, a warpgroup.
__global__ void __launch_bounds__(128)
    weigh_values(const float* p, const __grid_constant__ CUtensorMap v, float* out) {
  auto* const panel = dynamic_shared<unsigned char>();
  __shared__ uint64_t landed;
  const int thread = int(threadIdx.x);
  if (thread == 0) {
    mbarrier_init(&landed, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (thread == 0) {
    mbarrier_arrive_expect_tx(&landed, kRampPanel);
    tma_load(panel, v, &landed, {0, 0});
  }
  uint32_t weights[kRampKeys / 16][4];
#pragma unroll
  for (int i = 0; i < kRampKeys / 4; ++i) {
    const MatrixPlace at = WgmmaM64<kRampDims>::a16(thread, i % 4 * 2);  // position of register i's pair in p
    const float* pair = p + at.row * kRampKeys + i / 4 * 16 + at.column;
    weights[i / 4][i % 4] = pack<__half>(pair[0], pair[1]);
  }
  mbarrier_wait(&landed, 0);  // the panel has landed; TMA needs no fence_proxy_async
  const uint64_t values = wgmma_descriptor<Swizzle::b128>(panel, 16, 1024);  // 16 is ignored: one panel
  float sums[kRampDims / 2];
  wgmma_pin(weights);  // for the compiler: wgmma reads these registers
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kRampKeys / 16; ++step)
    wgmma<__half, kRampDims, Major::mn>(sums, weights[step], wgmma_advance(values, step * 2048), step > 0);
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_pin(sums);
  wgmma_pin(weights);
#pragma unroll
  for (int i = 0; i < kRampDims / 2; ++i) {
    const MatrixPlace at = WgmmaM64<kRampDims>::d(thread, i);
    out[at.row * kRampDims + at.column] = sums[i];
  }
}

}  // namespace flashbook::fa3
