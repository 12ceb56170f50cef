//| # Hopper's five products
//|
//| The Hopper steps multiply with `wgmma`. TMA loads tiles of Q, K, V and dO into shared memory in the layout
//| of [`tiles.h`](tiles.h): panels of 64 columns, with the pieces of a row permuted. No tile is copied again,
//| although three of the five products need a transposed operand: the MN-major flag tells `wgmma` in which
//| direction the contraction dimension runs.
//|
//| | product | left operand | right operand | summed over |
//| | --- | --- | --- | --- |
//| | S^T = K Q^T | K, along its rows | Q, along its rows | head dimension |
//| | dP^T = V dO^T | V, along its rows | dO, along its rows | head dimension |
//| | dV += P^T dO | P^T, in registers | dO, down its columns | queries |
//| | dK += dS^T Q | dS^T, in registers | Q, down its columns | queries |
//| | dQ = dS K | dS, from shared memory | K, down its columns | keys |
//|
//| ![Five products: which operand comes from registers, which from shared memory, and which way it is
//| read](../../docs/figures/backward_products.svg)
#pragma once
#include "common/hopper/tiles.h"
#include "common/ptx/fence.h"
#include "common/ptx/stmatrix.h"

namespace flashbook::hopper {

//| A tile is read both ways. The first two products sum over the head dimension, which runs *along* the rows
//| of both tiles. The other three sum over queries or keys, which run *down* the columns, from row to row.
//| The layout in memory is the same; only the flag and the descriptor's distances differ.

//| ## Scores, transposed
//|
//| A warpgroup owns 64 keys. It computes S^T and dP^T, keys down and queries across, because of the next
//| products: P^T and dS^T are left operands, and an accumulator of 64 rows becomes a left operand in
//| registers without any data movement. If it computed S, both would have to go through shared memory. So
//| four products use functions of [`tiles.h`](tiles.h): `issue_scores` for (K, Q) and (V, dO), and
//| `issue_accumulate` for (P^T, dO) and (dS^T, Q).

//| ## K in halves
//|
//| Two warpgroups compute dQ, and with 64 queries each computes half of its columns, so its half of K must
//| begin where a swizzle begins: at a panel. Half of 192 columns are one and a half panels. So TMA loads each
//| half into two panels of its own, the second of which also has 32 columns that no product reads.
/// Where a tile of keys has its columns.
template <int kHeadDim>
struct KeyColumns {
  static constexpr int kRun = kHeadDim == 192 ? kHeadDim / 2 : kHeadDim;  ///< columns in adjacent panels
  static constexpr int kPanelsOfRun = ceil_div(kRun, kPanel), kPanels = kHeadDim / kRun * kPanelsOfRun;

  /// Returns the place of a column, which is its number if all panels are full.
  static constexpr __host__ __device__ int place(int column) {
    return column / kRun * kPanelsOfRun * kPanel + column % kRun;
  }
  /// Returns the first column of a panel.
  static constexpr __host__ __device__ int first_of(int panel) {
    return panel / kPanelsOfRun * kRun + panel % kPanelsOfRun * kPanel;
  }
};

/// Loads keys, whose map has rows in one piece if not all panels are full. (See `load` in `tiles.h`.)
template <int kHeadDim, typename T, int kKeys, int kColumns>
__device__ __forceinline__ void load_keys(Tile<T, kKeys, kColumns>& tile, const TileMap& map, uint64_t* full,
                                          int first_row, const Head& head) {
  if constexpr (kColumns == kHeadDim) {
    load(tile, map, full, first_row, head);
  } else {
#pragma unroll
    for (int panel = 0; panel < kColumns / kPanel; ++panel)
      tma_load(tile.element[panel], map, full,
               {KeyColumns<kHeadDim>::first_of(panel), first_row, 0, head.head, head.batch});
  }
}

/// Issues scores = K Q^T of 64 keys, as one group. `k` and `q` are the tiles' descriptors.
template <typename T, int kHeadDim, int kKeys, int kFloats>
__device__ __forceinline__ void issue_key_scores(float (&scores)[kFloats], uint64_t k, uint64_t q) {
  constexpr int kQueries = 2 * kFloats;
#pragma unroll
  for (int step = 0; step < kHeadDim / kMmaK; ++step) {
    const int panel = step * kMmaK / kPanel, column_bytes = step * kMmaK % kPanel * 2;
    const int place = KeyColumns<kHeadDim>::place(step * kMmaK);
    wgmma<T, kQueries>(scores, wgmma_advance(k, place / kPanel * kKeys * kPanelRowBytes + place % kPanel * 2),
                       wgmma_advance(q, panel * kQueries * kPanelRowBytes + column_bytes), step > 0);
  }
  wgmma_commit();
}

//| ## dS, the one through shared memory
//|
//| dQ sums over keys, and the keys of a tile belong to two warpgroups: each needs the other's dS. So both
//| store their dS^T, transposed on the way by `stmatrix`, as a tile of queries by keys, and both read the
//| whole tile.

/// Writes a warp's 16 keys of dS^T into the tile of dS. `key` is the first of them.
template <typename T, int kQueries, int kKeys>
__device__ __forceinline__ void store_transposed_to_smem(Tile<T, kQueries, kKeys>& tile,
                                                         const uint32_t (&ds)[kQueries / kMmaK][4], int key) {
  // A lane addresses one row of one of four 8 x 8 matrices: 8 keys of one query.
  const int lane = threadIdx.x % 32, query = lane / 16 * 8 + lane % 8, first = key + lane / 8 % 2 * 8;
  auto* panel = reinterpret_cast<unsigned char*>(tile.element[key / kPanel]);
#pragma unroll
  for (int step = 0; step < kQueries / kMmaK; ++step) {
    const uint32_t at = (step * kMmaK + query) * kPanelRowBytes + first % kPanel * 2;
    stmatrix_x4_trans(panel + swizzled(Swizzle::b128, at), ds[step]);
  }
  fence_proxy_async();  // this lane's writes become visible to wgmma
}

//| ## Which warpgroup computes which part of dQ
//|
//| Two warpgroups share dQ of a tile: with 128 queries, each computes 64 of them; with 64, each computes half
//| of the columns. In both cases a thread holds dQ as an accumulator of 64 rows. At d = 256, half of the
//| columns are 128, too many for the remaining registers, so they are computed in two pieces.

/// Returns the first of this thread's two rows, among its warpgroup's 64.
__device__ __forceinline__ int row_of_thread() {
  return threadIdx.x / 32 % kWarpsPerWarpgroup * kRowsPerWarp + threadIdx.x % 32 / 4;
}

/// A warpgroup's part of a tile's dQ.
template <int kHeadDim, int kQueries>
struct DqPart {
  static_assert(kQueries == 64 || kQueries == 128, "an accumulator has 64 rows, and there are two");
  static constexpr bool kByRows = kQueries == 128;
  static constexpr int kColumns = kByRows ? kHeadDim : kHeadDim / 2;
  static constexpr int kPieceColumns = kColumns % kPanel == 0 ? kPanel : kColumns;  ///< a panel, or 96
  static constexpr int kPieces = kColumns / kPieceColumns;
  static constexpr int kFloats = kPieceColumns / 2;  ///< floats of a piece per thread
  static constexpr int kPieceFloats = kFloats * kWarpgroup;

  //| A thread's part of dQ is written to memory in the order of its registers: the four floats of thread t
  //| are next to those of thread t + 1. So 32 lanes write 512 contiguous bytes, whether to shared memory or
  //| to the L2. Only the kernel that rounds those sums reads them, in the same order.
  /// Returns the address of the sums of warpgroup `number`'s part of dQ, for the tile at this row.
  static __device__ __forceinline__ float* sums_of(float* dq, int row, int number) {
    return dq + int64_t(row) * kHeadDim + number * kPieces * kPieceFloats;
  }
};

//| A piece begins with a panel of K, where a swizzle begins. The contraction runs over keys here: down the
//| columns of K, and along the rows of dS.
/// Issues a piece of a warpgroup's part of dQ = dS K, as one group. `ds` and `k` are the tiles' descriptors.
template <typename T, int kHeadDim, int kKeys, int kQueries>
__device__ __forceinline__ void issue_dq(float (&dq)[DqPart<kHeadDim, kQueries>::kFloats], uint64_t ds,
                                         uint64_t k, int number, int piece) {
  using Part = DqPart<kHeadDim, kQueries>;
  if constexpr (Part::kByRows) ds = wgmma_advance(ds, number * kRowsPerWarpgroup * kPanelRowBytes);
  constexpr int kPanels = KeyColumns<kHeadDim>::place(Part::kColumns) / kPanel;  // of a warpgroup's columns
  const int first_panel = Part::kByRows ? piece : number * kPanels + piece;
  k = wgmma_advance(k, first_panel * kKeys * kPanelRowBytes);
#pragma unroll
  for (int step = 0; step < kKeys / kMmaK; ++step) {
    const int panel = step * kMmaK / kPanel, column_bytes = step * kMmaK % kPanel * 2;
    wgmma<T, Part::kPieceColumns, Major::k, Major::mn>(
        dq, wgmma_advance(ds, panel * kQueries * kPanelRowBytes + column_bytes),
        wgmma_advance(k, step * kMmaK * kPanelRowBytes), step > 0);
  }
  wgmma_commit();
}

}  // namespace flashbook::hopper
