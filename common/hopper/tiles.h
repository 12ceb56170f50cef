/// \file
/// Tiles of 16-bit elements in shared memory, and their products by wgmma.
/// chapters/05_flash_attention_3/tiles.cuh explains it.
#pragma once
#include "common/hopper/problem.h"
#include "common/ptx/convert.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"

namespace flashbook::hopper {

constexpr int kPanel = 64;                      ///< columns of a panel
constexpr int kPanelRowBytes = kPanel * 2;      ///< of 16-bit elements: the span of the swizzle
constexpr int kAtomBytes = 8 * kPanelRowBytes;  ///< 8 rows, after which the swizzle's pattern repeats
constexpr int kDepth = 16;                      ///< of the summed dimension, what one wgmma takes

/// kRows rows of one head, as TMA lays them down.
template <typename T, int kRows, int kHeadDim>
struct alignas(kAtomBytes) Tile {
  T element[kHeadDim / kPanel][kRows][kPanel];  // [panel][row][column], pieces of a row exchanged
};

/// Brings rows `first_row` ... of `head` into `tile`. `full` must have been told of its bytes.
template <typename T, int kRows, int kHeadDim>
__device__ __forceinline__ void load(Tile<T, kRows, kHeadDim>& tile, const CUtensorMap& map, uint64_t* full,
                                     int first_row, const Head& head) {
  tma_load(tile.element, map, full, {0, first_row, 0, head.head, head.batch});
}

/// The descriptor of a tile of Q or K.
template <typename T, int kRows, int kHeadDim>
__device__ __forceinline__ uint64_t rows_descriptor(const Tile<T, kRows, kHeadDim>& tile) {
  return wgmma_descriptor<Swizzle::b128>(tile.element, 16, kAtomBytes);  // 16: not used, but must be valid
}

/// The descriptor of a tile of V.
template <typename T, int kRows, int kHeadDim>
__device__ __forceinline__ uint64_t values_descriptor(const Tile<T, kRows, kHeadDim>& tile) {
  return wgmma_descriptor<Swizzle::b128>(tile.element, kRows * kPanelRowBytes, kAtomBytes);
}

/// Issues scores = Q K^T, as one group. 64 queries, kKeys keys.
template <typename T, int kHeadDim, int kKeys>
__device__ __forceinline__ void issue_scores(float (&scores)[kKeys / 2], uint64_t q, uint64_t k) {
#pragma unroll
  for (int step = 0; step < kHeadDim / kDepth; ++step) {
    const int panel = step * kDepth / kPanel, column_bytes = step * kDepth % kPanel * 2;
    wgmma<T, kKeys>(scores, wgmma_advance(q, panel * kRowsOfWarpgroup * kPanelRowBytes + column_bytes),
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
