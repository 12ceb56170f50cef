//| # Tiles in shared memory, and products of them
//|
//| All Hopper kernels multiply the same way: TMA loads a tile into shared memory, a descriptor describes its
//| layout, and `wgmma` reads it, sixteen numbers deep at a time.
//|
//| ![A tile of K and one of V: the places of the 16-byte pieces of a row, and the product that reads them. A
//| product takes two pieces of every row of K, and all pieces of 16 rows of
//| V](../../docs/figures/wgmma_tiles.svg)
#pragma once
#include "common/hopper/problem.h"
#include "common/ptx/convert.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"

namespace flashbook::hopper {

//| ## A tile
//|
//| A row of Q, K or V has 64, 128 or 256 elements of two bytes. The widest swizzle permutes 16-byte pieces
//| within 128 bytes, so a tile is cut into *panels* of 64 columns. A panel's row is exactly 128 bytes, its
//| pieces are permuted according to the row's number, and eight rows of one column are in eight different
//| groups of banks.
//|
//| The tensor map has a dimension for panels (`launch.h`): {64 columns, rows, panels, heads, batch}. So one
//| instruction loads a whole tile, and rows past the end of a head become zeros.
//|
//| **A head dimension without a tile of its own**, such as 80, uses the next larger tile, of 128 columns. The
//| columns past the 80th must become zeros, too: then they add nothing to scores, and their outputs are zeros
//| that are never stored. TMA itself fills in zeros past the end of each dimension of the map. So the map
//| must have rows that end at column 80, and with a dimension for panels that is impossible: its last panel
//| would have 16 columns, all others 64. Such a map has rows of 80 columns in one piece, and boxes of one
//| panel. A tile needs one instruction per panel, and everything past the row's end becomes zeros.

constexpr int kPanel = 64;                      ///< columns per panel
constexpr int kPanelRowBytes = kPanel * 2;      ///< bytes of a 16-bit panel row: the span of the swizzle
constexpr int kAtomBytes = 8 * kPanelRowBytes;  ///< 8 rows, after which the swizzle's pattern repeats
constexpr int kMmaK = 16;                       ///< depth of one wgmma

/// A tile of kRows rows and kColumns columns in TMA's layout: rows of one head, or of scores.
template <typename T, int kRows, int kColumns>
struct alignas(kAtomBytes) Tile {
  static constexpr uint32_t kBytes = kRows * kColumns * sizeof(T);
  T element[kColumns / kPanel][kRows][kPanel];  // [panel][row][column], pieces of a row exchanged
};

/// A map of tiles, and whether its boxes are panels; if so, a row is one dimension, which ends where head_dim
/// ends.
struct TileMap : CUtensorMap {
  bool by_panels;
};

/// Loads rows `first_row` ... of `head` into `tile`. Its bytes must have been announced at `full`.
template <typename T, int kRows, int kColumns>
__device__ __forceinline__ void load(Tile<T, kRows, kColumns>& tile, const CUtensorMap& map, uint64_t* full,
                                     int first_row, const Head& head) {
  tma_load(tile.element, map, full, {0, first_row, 0, head.head, head.batch});
}

//| One instruction loads the tile, or its first panel. Only a padded tile loads its other panels separately.
/// Loads rows of a tensor whose head dimension may be padded.
template <typename T, int kRows, int kColumns>
__device__ __forceinline__ void load(Tile<T, kRows, kColumns>& tile, const TileMap& map, uint64_t* full,
                                     int first_row, const Head& head) {
  tma_load(tile.element, map, full, {0, first_row, 0, head.head, head.batch});
  if (kColumns > kPanel && map.by_panels)
#pragma unroll
    for (int panel = 1; panel < kColumns / kPanel; ++panel)
      tma_load(tile.element[panel], map, full, {panel * kPanel, first_row, 0, head.head, head.batch});
}

//| Stores work the same way. TMA writes neither rows nor columns past the end.
/// Stores `tile` as rows `first_row` ... of `head`. The caller commits.
template <typename Tile>
__device__ __forceinline__ void store(const Tile& tile, const CUtensorMap& map, int first_row,
                                      const Head& head) {
  tma_store(map, &tile, {0, first_row, 0, head.head, head.batch});
}

/// Stores rows of a tensor whose head dimension may be padded.
template <typename T, int kRows, int kColumns>
__device__ __forceinline__ void store(const Tile<T, kRows, kColumns>& tile, const TileMap& map, int first_row,
                                      const Head& head) {
  tma_store(map, tile.element, {0, first_row, 0, head.head, head.batch});
  if (kColumns > kPanel && map.by_panels)
#pragma unroll
    for (int panel = 1; panel < kColumns / kPanel; ++panel)
      tma_store(map, tile.element[panel], {panel * kPanel, first_row, 0, head.head, head.batch});
}

//| Threads that write a tile themselves have to apply the swizzle.
/// Returns the place of eight columns of a row of a tile, 16 bytes.
template <typename T, int kRows, int kColumns>
__device__ __forceinline__ uint4* piece_of(Tile<T, kRows, kColumns>& tile, int row, int column) {
  auto* panel = reinterpret_cast<unsigned char*>(tile.element[column / kPanel]);
  return reinterpret_cast<uint4*>(
      panel + swizzled(Swizzle::b128, uint32_t(row * kPanelRowBytes + column % kPanel * sizeof(T))));
}

//| ## Two descriptors
//|
//| A product sums over one dimension. For S = Q K^T it is the head dimension, which runs along the rows of
//| both tiles: they are contraction-major. (PTX says *K-major*, after the K of M x N x K, which has nothing
//| to do with our keys.) Groups of 8 rows are 1024 bytes apart, and that is all the descriptor needs. One
//| `wgmma` takes 16 columns, which is 32 bytes of a row; four fill a panel.
//|
//| For O = P V the contraction runs over keys, and these run *across* the rows of V, from one to the next: V
//| is *MN-major*. Again the next 8 keys are 1024 bytes further on. The head dimension, n, now runs along a
//| row and continues in the next panel, one leading distance further on. One `wgmma` takes 16 keys, 16 whole
//| rows of each panel.

/// Returns the descriptor of a tile whose rows run along the contraction dimension: Q or K for scores.
template <typename T, int kRows, int kColumns>
__device__ __forceinline__ uint64_t k_major(const Tile<T, kRows, kColumns>& tile) {
  return wgmma_descriptor<Swizzle::b128>(tile.element, 16, kAtomBytes);  // 16: not used, but must be valid
}

/// Returns the descriptor of a tile with one row per index of the contraction dimension: V for P V.
template <typename T, int kRows, int kColumns>
__device__ __forceinline__ uint64_t mn_major(const Tile<T, kRows, kColumns>& tile) {
  return wgmma_descriptor<Swizzle::b128>(tile.element, kRows * kPanelRowBytes, kAtomBytes);
}

//| ## The products
//|
//| Each `wgmma` has a depth of 16, so scores need head_dim / 16 of them, and P V needs keys / 16. Only the
//| addresses in the descriptors change from one to the next. For scores, the first one overwrites the
//| registers instead of adding to them (`step > 0`), so they need not be cleared. Each function commits its
//| products as one group.
/// Issues scores = left right^T, 64 rows by 2 * kFloats columns, as one group: S from Q and K. `kLeftRows` is
/// the number of rows of left's tile if it has more than those 64.
template <typename T, int kHeadDim, int kLeftRows = kRowsPerWarpgroup, int kFloats>
__device__ __forceinline__ void issue_scores(float (&scores)[kFloats], uint64_t left, uint64_t right) {
  constexpr int kRightRows = 2 * kFloats;
#pragma unroll
  for (int step = 0; step < kHeadDim / kMmaK; ++step) {
    const int panel = step * kMmaK / kPanel, column_bytes = step * kMmaK % kPanel * 2;
    wgmma<T, kRightRows>(scores, wgmma_advance(left, panel * kLeftRows * kPanelRowBytes + column_bytes),
                         wgmma_advance(right, panel * kRightRows * kPanelRowBytes + column_bytes), step > 0);
  }
  wgmma_commit();
}

//| P V always adds: O accumulates over tiles. Its left operand comes from registers, 16 keys at a time.
/// 64 rows of kColumns columns as wgmma takes them from registers: for every 16 columns, four registers of
/// two elements.
template <int kColumns>
using Fragments = uint32_t[kColumns / kMmaK][4];

/// Issues sum += left right, as one group: O from P and V. `right` is MN-major.
template <typename T, int kFloats, int kSteps>
__device__ __forceinline__ void issue_accumulate(float (&sum)[kFloats], const uint32_t (&left)[kSteps][4],
                                                 uint64_t right) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
    wgmma<T, 2 * kFloats, Major::mn>(sum, left[step], wgmma_advance(right, step * kMmaK * kPanelRowBytes),
                                     true);
  wgmma_commit();
}

//| ## From scores to P without moving anything
//|
//| A thread's floats of S and its registers of P are the same elements of the matrix
//| (`common/ptx/wgmma_layout.h`): for every 16 keys it holds 8 scores, and rounded in pairs, in order, they
//| are the four registers of P. No shuffle and no trip through shared memory is needed: the layouts were made
//| for each other.

/// Returns an accumulator as a left operand, rounded to T: P from scores that are now probabilities.
template <typename T, int kFloats>
__device__ __forceinline__ void round_to_fragments(uint32_t (&to)[kFloats / 8][4],
                                                   const float (&from)[kFloats]) {
#pragma unroll
  for (int i = 0; i < kFloats; i += 2) to[i / 8][i / 2 % 4] = pack<T>(from[i], from[i + 1]);
}

}  // namespace flashbook::hopper
