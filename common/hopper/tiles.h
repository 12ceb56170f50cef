/// \file
/// Tiles of 16-bit elements in shared memory, as TMA lays them down and wgmma reads them: panels of 64
/// columns, pieces of a row exchanged. chapters/05_flash_attention_3/tiles.cuh explains it.
#pragma once
#include "common/hopper/problem.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"

namespace flashbook::hopper {

constexpr int kPanel = 64;                      ///< columns of a panel
constexpr int kPanelRowBytes = kPanel * 2;      ///< of 16-bit elements: the span of the swizzle
constexpr int kAtomBytes = 8 * kPanelRowBytes;  ///< 8 rows, after which the swizzle's pattern repeats
constexpr int kDepth = 16;                      ///< of the summed dimension, what one wgmma takes

/// kRows rows of kColumns columns: of one head, or of scores.
template <typename T, int kRows, int kColumns>
struct alignas(kAtomBytes) Tile {
  static constexpr uint32_t kBytes = kRows * kColumns * sizeof(T);
  T element[kColumns / kPanel][kRows][kPanel];  // [panel][row][column], pieces of a row exchanged
};

/// Brings rows `first_row` ... of `head` into `tile`. `full` must have been told of its bytes.
template <typename T, int kRows, int kColumns>
__device__ __forceinline__ void load(Tile<T, kRows, kColumns>& tile, const CUtensorMap& map, uint64_t* full,
                                     int first_row, const Head& head) {
  tma_load(tile.element, map, full, {0, first_row, 0, head.head, head.batch});
}

/// The descriptor of a tile whose rows run along the summed dimension.
template <typename T, int kRows, int kColumns>
__device__ __forceinline__ uint64_t along_rows(const Tile<T, kRows, kColumns>& tile) {
  return wgmma_descriptor<Swizzle::b128>(tile.element, 16, kAtomBytes);  // 16: not used, but must be valid
}

/// The descriptor of a tile whose rows are numbered by the summed dimension.
template <typename T, int kRows, int kColumns>
__device__ __forceinline__ uint64_t across_rows(const Tile<T, kRows, kColumns>& tile) {
  return wgmma_descriptor<Swizzle::b128>(tile.element, kRows * kPanelRowBytes, kAtomBytes);
}

}  // namespace flashbook::hopper
