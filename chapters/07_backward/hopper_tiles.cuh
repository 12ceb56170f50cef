//| # Hopper's five products
//|
//| Steps 3 to 6 multiply with `wgmma`. TMA lays tiles of Q, K, V and dO into shared memory as chapter 5 does: panels of 64
//| columns, pieces of a row exchanged. Nothing is copied a second time, though three of the five products want an operand
//| transposed. A descriptor says which way the summed dimension runs, and that is all it takes.
//|
//| | product | left operand | right operand | summed over |
//| | --- | --- | --- | --- |
//| | S^T = K Q^T | K, along its rows | Q, along its rows | head dimension |
//| | dP^T = V dO^T | V, along its rows | dO, along its rows | head dimension |
//| | dV += P^T dO | P^T, in registers | dO, across its rows | queries |
//| | dK += dS^T Q | dS^T, in registers | Q, across its rows | queries |
//| | dQ = dS K | dS, from shared memory | K, across its rows | keys |
//|
//| ![Five products: which operand comes from registers, which from shared memory, and which way it is read](../../docs/figures/backward_products.svg)
#pragma once
#include "chapters/07_backward/problem.cuh"
#include "common/hopper/tiles.h"
#include "common/ptx/convert.h"
#include "common/ptx/fence.h"
#include "common/ptx/stmatrix.h"

namespace flashbook::backward {

using hopper::Head;
using hopper::kRowsOfWarp;
using hopper::kRowsOfWarpgroup;
using hopper::kWarpgroup;
using hopper::kWarpsOfWarpgroup;
using hopper::kWholeWarp;

//| A tile is what chapter 5's is, from `common/hopper`: panels of 64 columns, 128 bytes a row, groups of 8 rows after which
//| the swizzle repeats. Only here it is read both ways. The first two products sum over the head dimension, which runs
//| *along* the rows of both tiles. The other three sum over queries or keys, which run *across* the rows, from one to the
//| next. The layout in memory is the same; only the descriptor's distances differ.
using hopper::k_major;
using hopper::kAtomBytes;
using hopper::kMmaK;
using hopper::kPanel;
using hopper::kPanelRowBytes;
using hopper::load;
using hopper::mn_major;
using hopper::Tile;

//| ## Scores, transposed
//|
//| A warpgroup owns 64 keys. It computes S^T and dP^T, keys down and queries across, because of what comes next: P^T and
//| dS^T are left operands, and an accumulator of 64 rows becomes a left operand in registers without moving anything
//| (chapter 5 does it with P). Had it computed S, both would have to go through shared memory.

/// Issues scores = left right^T, 64 keys by kQueries queries, as one group: S^T from K and Q, dP^T from V and
/// dO.
template <typename T, int kHeadDim, int kKeys, int kQueries>
__device__ __forceinline__ void issue_scores(float (&scores)[kQueries / 2], uint64_t left, uint64_t right) {
#pragma unroll
  for (int step = 0; step < kHeadDim / kMmaK; ++step) {
    const int panel = step * kMmaK / kPanel, column_bytes = step * kMmaK % kPanel * 2;
    wgmma<T, kQueries>(scores, wgmma_advance(left, panel * kKeys * kPanelRowBytes + column_bytes),
                       wgmma_advance(right, panel * kQueries * kPanelRowBytes + column_bytes), step > 0);
  }
  wgmma_commit();
}

/// 64 keys by kQueries queries as wgmma takes a left operand from registers.
template <int kQueries>
using Fragments = uint32_t[kQueries / kMmaK][4];

/// Issues sum += left right, as one group: dV from P^T and dO, dK from dS^T and Q.
template <typename T, int kHeadDim, int kSteps>
__device__ __forceinline__ void issue_sum(float (&sum)[kHeadDim / 2], const uint32_t (&left)[kSteps][4],
                                          uint64_t right) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
    wgmma<T, kHeadDim, Major::mn>(sum, left[step], wgmma_advance(right, step * kMmaK * kPanelRowBytes), true);
  wgmma_commit();
}

//| An accumulator of 64 rows, rounded in pairs in the order of its registers, is a left operand as it stands.
/// What each thread has of 16-bit values, rounded in pairs, in order: a left operand.
template <typename T, int kFloats>
__device__ __forceinline__ void round_to_fragments(uint32_t (&to)[kFloats / 8][4],
                                                   const float (&from)[kFloats]) {
#pragma unroll
  for (int i = 0; i < kFloats; i += 2) to[i / 8][i / 2 % 4] = pack<T>(from[i], from[i + 1]);
}

//| ## dS, the one that passes through shared memory
//|
//| dQ sums over keys, and the keys of a tile belong to two warpgroups: each needs the other's dS. So both write their dS^T
//| down, transposed on the way by `stmatrix`, as a tile of queries by keys, and both read all of it.

/// Writes a warp's 16 keys of dS^T into the tile of dS. `key` is the first of them.
template <typename T, int kQueries, int kKeys>
__device__ __forceinline__ void lay_down(Tile<T, kQueries, kKeys>& tile,
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

//| ## Who computes which part of dQ
//|
//| Two warpgroups share dQ of a tile: of 128 queries each takes 64, with all columns; of 64 queries each takes half of the
//| columns. Either way a thread has dQ as an accumulator of 64 rows. At d = 256 half of the columns are 128, too many for
//| the registers that are left, and the part is computed in two pieces.

/// A warpgroup's part of dQ of a tile.
template <int kHeadDim, int kQueries>
struct DqPart {
  static_assert(kQueries == 64 || kQueries == 128, "an accumulator has 64 rows, and there are two");
  static constexpr bool kByRows = kQueries == 128;
  static constexpr int kColumns = kByRows ? kHeadDim : kHeadDim / 2;
  static constexpr int kPieces = kColumns / kPanel;  ///< one panel wide each
  static constexpr int kFloats = kPanel / 2;         ///< that a thread has of a piece
  static constexpr int kPieceFloats = kFloats * kWarpgroup;
};

//| A piece is one panel of K wide, so its columns begin where a swizzle begins. Keys are the summed dimension here:
//| across the rows of K, and along those of dS.
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

}  // namespace flashbook::backward
