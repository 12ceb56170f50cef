/// \file
/// The two products of a forward pass, by wgmma, and P as the second one takes it.
/// chapters/05_flash_attention_3/tiles.cuh explains it.
#pragma once
#include "common/hopper/tiles.h"
#include "common/ptx/convert.h"

namespace flashbook::hopper {

/// Issues scores = Q K^T, as one group. 64 queries, of a tile that has kRows, and kKeys keys.
template <typename T, int kHeadDim, int kKeys, int kRows = kRowsOfWarpgroup>
__device__ __forceinline__ void issue_scores(float (&scores)[kKeys / 2], uint64_t q, uint64_t k) {
#pragma unroll
  for (int step = 0; step < kHeadDim / kDepth; ++step) {
    const int panel = step * kDepth / kPanel, column_bytes = step * kDepth % kPanel * 2;
    wgmma<T, kKeys>(scores, wgmma_advance(q, panel * kRows * kPanelRowBytes + column_bytes),
                    wgmma_advance(k, panel * kKeys * kPanelRowBytes + column_bytes), step > 0);
  }
  wgmma_commit();
}

/// P as wgmma takes it from registers: of every 16 keys, four registers of two probabilities.
template <int kKeys>
using Probabilities = uint32_t[kKeys / kDepth][4];

/// Issues output += P V, as one group.
template <typename T, int kHeadDim, int kKeys>
__device__ __forceinline__ void issue_values(float (&output)[kHeadDim / 2],
                                             const uint32_t (&p)[kKeys / kDepth][4], uint64_t v) {
#pragma unroll
  for (int step = 0; step < kKeys / kDepth; ++step)
    wgmma<T, kHeadDim, Major::mn>(output, p[step], wgmma_advance(v, step * kDepth * kPanelRowBytes), true);
  wgmma_commit();
}

/// P = scores, which are probabilities by now, rounded to T.
template <typename T, int kFloats>
__device__ __forceinline__ void round_probabilities(uint32_t (&p)[kFloats / 8][4],
                                                    const float (&scores)[kFloats]) {
#pragma unroll
  for (int i = 0; i < kFloats; i += 2) p[i / 8][i / 2 % 4] = pack<T>(scores[i], scores[i + 1]);
}

}  // namespace flashbook::hopper
