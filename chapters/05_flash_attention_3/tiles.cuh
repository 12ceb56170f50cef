//| # Tiles in shared memory, and products of them
//|
//| Steps 1 to 5 multiply the same way: TMA lays a tile into shared memory, a descriptor says how it lies there, and `wgmma`
//| reads it, sixteen numbers deep at a time.
//|
//| ![A tile of K and one of V: where the 16-byte pieces of a row lie, and which product reads them. A product takes two pieces of every row of K, and all pieces of 16 rows of V](../../docs/figures/wgmma_tiles.svg)
#pragma once
#include "chapters/05_flash_attention_3/problem.cuh"
#include "common/ptx/convert.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"

namespace flashbook::flash3 {

//| ## A tile
//|
//| A row of Q, K or V has 64, 128 or 256 elements of two bytes. The widest swizzle exchanges 16-byte pieces within 128
//| bytes, so a tile is cut into *panels* of 64 columns. A panel's row is exactly 128 bytes, its pieces change places with
//| the row's number, and eight rows of one column lie in eight different groups of banks.
//|
//| The tensor map has a dimension for panels (`launch.cuh`): {64 columns, rows, panels, heads, batch}. So one instruction
//| brings a whole tile, and rows beyond the end of a head come as zeros.

constexpr int kPanel = 64;                      ///< columns of a panel
constexpr int kPanelRowBytes = kPanel * 2;      ///< of 16-bit elements: the span of the swizzle
constexpr int kAtomBytes = 8 * kPanelRowBytes;  ///< 8 rows, after which the swizzle's pattern repeats
constexpr int kDepth = 16;                      ///< of the summed dimension, what one wgmma takes

/// kRows rows of one head, as TMA lays them down.
template <typename T, int kRows, int kHeadDim>
struct alignas(kAtomBytes) Tile {
  static constexpr uint32_t kBytes = kRows * kHeadDim * sizeof(T);
  T element[kHeadDim / kPanel][kRows][kPanel];  // [panel][row][column], pieces of a row exchanged
};

/// Brings rows `first_row` ... of `head` into `tile`. `full` must have been told of its bytes.
template <typename T, int kRows, int kHeadDim>
__device__ __forceinline__ void load(Tile<T, kRows, kHeadDim>& tile, const CUtensorMap& map, uint64_t* full,
                                     int first_row, const Head& head) {
  tma_load(tile.element, map, full, {0, first_row, 0, head.head, head.batch});
}

//| ## Two descriptors
//|
//| A product sums over one dimension. For S = Q K^T it is the head dimension, and it runs along the rows of both tiles: they
//| are contraction-major. (PTX says *K-major*, after the K of M x N x K, which has nothing to do with our keys.) Groups of 8 rows follow each other at 1024 bytes, and that is all the
//| descriptor must know. One `wgmma` takes 16 columns, which is 32 bytes of a row; four fill a panel.
//|
//| For O = P V the summed dimension is the key, and it runs *across* the rows of V, from one to the next: V is *MN-major*.
//| Again the next 8 keys are 1024 bytes on. The head dimension, n, now runs along a row and goes on in the next panel: that
//| is the leading distance. One `wgmma` takes 16 keys, 16 whole rows of each panel.

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

//| ## The products
//|
//| Each `wgmma` sums 16 numbers deep, so scores take head_dim / 16 of them, and P V takes keys / 16. Only the addresses
//| in the descriptors change from one to the next. For scores the first one does not add to what stands in the registers
//| (`step > 0`), so nobody has to clear them. Each function commits its products as one group.
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

//| P V always adds: O goes on from tile to tile. Its left operand comes from registers, 16 keys at a time.
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

//| ## From scores to P without moving anything
//|
//| A thread's floats of S and its registers of P are the same elements of the matrix (`common/ptx/wgmma_layout.h`): for
//| every 16 keys it holds 8 scores, and rounded in pairs, in order, they are the four registers of P. No shuffle and no
//| trip through shared memory: the layouts were made for each other.

/// P = scores, which are probabilities by now, rounded to T.
template <typename T, int kFloats>
__device__ __forceinline__ void round_probabilities(uint32_t (&p)[kFloats / 8][4],
                                                    const float (&scores)[kFloats]) {
#pragma unroll
  for (int i = 0; i < kFloats; i += 2) p[i / 8][i / 2 % 4] = pack<T>(scores[i], scores[i + 1]);
}

}  // namespace flashbook::flash3
