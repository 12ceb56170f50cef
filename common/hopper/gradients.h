/// \file
/// What a backward pass multiplies by wgmma beside the products of `tiles.h`: scores with keys down and
/// queries across, and dQ from dS in shared memory. Two warpgroups share a tile of keys, 64 each.
/// chapters/07_backward/hopper_tiles.cuh explains it.
#pragma once
#include "common/hopper/tiles.h"
#include "common/ptx/fence.h"
#include "common/ptx/stmatrix.h"

namespace flashbook::hopper {

/// Writes a warp's 16 keys of dS^T into the tile of dS. `key` is the first of them.
template <typename T, int kQueries, int kKeys>
__device__ __forceinline__ void store_transposed_to_smem(Tile<T, kQueries, kKeys>& tile,
                                                         const uint32_t (&ds)[kQueries / kMmaK][4], int key) {
  // A lane gives the place of one row of one of four 8 x 8 matrices: 8 keys of one query.
  const int lane = threadIdx.x % 32, query = lane / 16 * 8 + lane % 8, first = key + lane / 8 % 2 * 8;
  auto* panel = reinterpret_cast<unsigned char*>(tile.element[key / kPanel]);
#pragma unroll
  for (int step = 0; step < kQueries / kMmaK; ++step) {
    const uint32_t at = (step * kMmaK + query) * kPanelRowBytes + first % kPanel * 2;
    stmatrix_x4_trans(panel + swizzled(Swizzle::b128, at), ds[step]);
  }
  fence_proxy_async();  // this lane's writes become visible to wgmma
}

/// A warpgroup's part of dQ of a tile: of 128 queries 64, of 64 queries half of the columns. In pieces one
/// panel wide.
template <int kHeadDim, int kQueries>
struct DqPart {
  static_assert(kQueries == 64 || kQueries == 128, "an accumulator has 64 rows, and there are two");
  static constexpr bool kByRows = kQueries == 128;
  static constexpr int kColumns = kByRows ? kHeadDim : kHeadDim / 2;
  static constexpr int kPieces = kColumns / kPanel;
  static constexpr int kFloats = kPanel / 2;  ///< that a thread has of a piece
  static constexpr int kPieceFloats = kFloats * kWarpgroup;
};

/// Issues a piece of a warpgroup's part of dQ = dS K, as one group. `ds` and `k` are the tiles' descriptors.
template <typename T, int kHeadDim, int kKeys, int kQueries>
__device__ __forceinline__ void issue_dq(float (&dq)[kPanel / 2], uint64_t ds, uint64_t k, int number,
                                         int piece) {
  using Part = DqPart<kHeadDim, kQueries>;
  if constexpr (Part::kByRows) ds = wgmma_advance(ds, number * kRowsOfWarpgroup * kPanelRowBytes);
  const int first_panel = Part::kByRows ? piece : number * Part::kPieces + piece;
  k = wgmma_advance(k, first_panel * kKeys * kPanelRowBytes);
#pragma unroll
  for (int step = 0; step < kKeys / kMmaK; ++step) {
    const int panel = step * kMmaK / kPanel, column_bytes = step * kMmaK % kPanel * 2;
    wgmma<T, kPanel, Major::k, Major::mn>(dq,
                                          wgmma_advance(ds, panel * kQueries * kPanelRowBytes + column_bytes),
                                          wgmma_advance(k, step * kMmaK * kPanelRowBytes), step > 0);
  }
  wgmma_commit();
}

}  // namespace flashbook::hopper
