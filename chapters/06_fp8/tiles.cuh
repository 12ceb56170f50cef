//| # Tiles of bytes, and products of them
//|
//| Chapter 5's tiles again, with elements of one byte. Two things change: `wgmma` takes e4m3 tiles only with
//| the summed dimension along their rows, and it takes P in a different order from that in which it leaves S.
//|
//| ![The scores of 16 keys and the threads that hold them; the places of P; the order of the keys that
//| follows](../../docs/figures/fp8_keys.svg)
#pragma once
#include "chapters/06_fp8/problem.cuh"
#include "common/ptx/convert.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/math.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"

namespace flashbook::fp8 {

using Element = __nv_fp8_e4m3;

//| ## A tile
//|
//| A row of Q or K has 64, 128 or 256 bytes, a row of the transposed V as many as a tile has keys. As in
//| chapter 5 a tile is cut into *panels*, whose rows are the span of the swizzle: 128 bytes, or 64 or 32 if
//| 128 does not divide the row.

/// kRows rows of kColumns bytes in TMA's layout, aligned to 8 rows of a panel, a swizzle's period.
template <int kRows, int kColumns>
struct alignas(kColumns % 128 == 0 ? 1024 : (kColumns & -kColumns) * 8) Tile {
  static constexpr int kPanel = kColumns % 128 == 0 ? 128 : kColumns % 64 == 0 ? 64 : 32;
  static constexpr Swizzle kSwizzle = kPanel == 128  ? Swizzle::b128
                                      : kPanel == 64 ? Swizzle::b64
                                                     : Swizzle::b32;
  static constexpr uint32_t kBytes = kRows * kColumns;
  unsigned char element[kColumns / kPanel][kRows][kPanel];  // [panel][row][column], pieces of a row exchanged

  //| Three functions compute where a byte is. Threads address 16 bytes of a row from some column on, with the
  //| swizzle applied. WGMMA uses descriptors, whose columns are not swizzled, since the hardware does that on
  //| the final address.
  /// Returns the bits of a column that the swizzle flips in `row`. They repeat every eight rows.
  __host__ __device__ static constexpr uint32_t exchange(int row) {
    return swizzled(kSwizzle, uint32_t(row % 8 * kPanel)) - row % 8 * kPanel;
  }

  /// Returns the offset, from the first byte of `row`, at which the swizzle puts the 16 bytes at `column`.
  __host__ __device__ static constexpr uint32_t column_bytes(int column, int row) {
    return column / kPanel * (kRows * kPanel) + (column % kPanel ^ exchange(row));
  }

  /// Returns the 16 bytes of `row` from `column` on.
  __device__ __forceinline__ unsigned char* piece(int row, int column) {
    return &element[0][row][0] + column_bytes(column, row);
  }

  /// Returns the tile's descriptor: the summed dimension runs along the rows.
  __device__ __forceinline__ uint64_t descriptor() const {
    return wgmma_descriptor<kSwizzle>(element, 16, 8 * kPanel);  // 16: not used, but must be valid
  }

  /// Returns the offset from the descriptor of column 0 to that of `column`.
  __host__ __device__ static constexpr uint32_t column_bytes(int column) {
    return column / kPanel * (kRows * kPanel) + column % kPanel;
  }
};

//| One thread requests a whole tile by its coordinates: column 0, first row, panel 0, head, batch entry.
/// Loads rows `first_row` ... of `head` into `tile`. `full` must already expect its bytes.
template <int kRows, int kColumns>
__device__ __forceinline__ void load(Tile<kRows, kColumns>& tile, const CUtensorMap& map, uint64_t* full,
                                     int first_row, const Head& head) {
  tma_load(tile.element, map, full, {0, first_row, 0, head.head, head.batch});
}

//| One `wgmma` sums 32 elements of one byte: as many bytes as 16 elements of two. An operand in registers has
//| four elements in each of four registers.
constexpr int kMmaK = 32;  ///< summed elements per wgmma

/// A wgmma operand in registers: of every 32 columns, four registers of four elements.
template <int kColumns>
using Fragments = uint32_t[kColumns / kMmaK][4];

//| ## S = Q K^T
//|
//| Shared memory is the scarce unit in FP8: the tensor cores read tiles twice as fast, and V is read and
//| written once more to be transposed. So Q, which is multiplied by every tile of keys, is read once and
//| stays in registers: 16 of them at d = 128. `ldmatrix` moves bytes like any other elements: from 8 rows of
//| 16 bytes each lane gets four neighbours, as `wgmma` expects. Where no registers are left, at d = 256 and
//| with three consumers at d = 128, Q stays in shared memory.

/// Reads a warp's 16 rows of Q, from `first_row` of the tile on.
template <int kHeadDim>
__device__ __forceinline__ void read_queries(Fragments<kHeadDim>& q, Tile<kRowsPerWarpgroup, kHeadDim>& tile,
                                             int first_row) {
  // Lanes 0-7 point at rows 0-7, lanes 8-15 at rows 8-15, lanes 16-31 at the same rows, 16 bytes on.
  const int lane = threadIdx.x % 32, row = first_row + lane % 16, column = lane / 16 * 16;
#pragma unroll
  for (int step = 0; step < kHeadDim / kMmaK; ++step)
    ldmatrix_x4(q[step], tile.piece(row, step * kMmaK + column));
}

//| The two forms of the product differ only in the location of the left operand.
/// Issues scores = Q K^T, as one group, with Q in registers.
template <int kHeadDim, int kKeys>
__device__ __forceinline__ void issue_scores(float (&scores)[kKeys / 2],
                                             const uint32_t (&q)[kHeadDim / kMmaK][4], uint64_t k) {
#pragma unroll
  for (int step = 0; step < kHeadDim / kMmaK; ++step)
    wgmma<Element, kKeys>(scores, q[step],
                          wgmma_advance(k, Tile<kKeys, kHeadDim>::column_bytes(step * kMmaK)), step > 0);
  wgmma_commit();
}

/// Issues scores = Q K^T, as one group, with Q in shared memory.
template <int kHeadDim, int kKeys>
__device__ __forceinline__ void issue_scores(float (&scores)[kKeys / 2], uint64_t q, uint64_t k) {
#pragma unroll
  for (int step = 0; step < kHeadDim / kMmaK; ++step)
    wgmma<Element, kKeys>(scores,
                          wgmma_advance(q, Tile<kRowsPerWarpgroup, kHeadDim>::column_bytes(step * kMmaK)),
                          wgmma_advance(k, Tile<kKeys, kHeadDim>::column_bytes(step * kMmaK)), step > 0);
  wgmma_commit();
}

//| ## O = P V, and the order of the keys
//|
//| In 16 bits a thread's scores, rounded in pairs, were its part of P. In 8 bits they are not. For every 16
//| keys thread t of a quad holds scores 2t, 2t+1, 2t+8 and 2t+9, but its register of P must hold the four
//| neighbours 4t to 4t+3:
//|
//| | key of a score | 0 1 | 2 3 | 4 5 | 6 7 | 8 9 | 10 11 | 12 13 | 14 15 |
//| | --- | --- | --- | --- | --- | --- | --- | --- | --- |
//| | thread that holds it | 0 | 1 | 2 | 3 | 0 | 1 | 2 | 3 |
//| | place of P where it goes | 0 1 | 4 5 | 8 9 | 12 13 | 2 3 | 6 7 | 10 11 | 14 15 |
//|
//| Nothing needs to be moved. A sum over keys does not depend on their order, as long as P and V agree on it.
//| So a thread packs what it has, and the transposed V has its keys in the order of the last line
//| (`transpose.cuh`).

/// P = scores, by now probabilities, rounded to e4m3.
template <int kFloats>
__device__ __forceinline__ void round_to_fragments(uint32_t (&p)[kFloats / 16][4],
                                                   const float (&scores)[kFloats]) {
#pragma unroll
  for (int i = 0; i < kFloats / 16; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const int at = 16 * i + 8 * half + 2 * row;
        p[i][2 * half + row] = pack_e4m3(scores[at], scores[at + 1], scores[at + 4], scores[at + 5]);
      }
}

//| If the softmax has left encodings (`softmax.cuh`), nothing is rounded: three byte permutations pack four
//| lowest bytes into a register.
/// Returns the lowest bytes of four floats' bits in one register, the first in its lowest byte.
__device__ __forceinline__ uint32_t pack_low_bytes(float a, float b, float c, float d) {
  const uint32_t low = byte_permute<0x0040>(__float_as_uint(a), __float_as_uint(b));
  const uint32_t high = byte_permute<0x0040>(__float_as_uint(c), __float_as_uint(d));
  return byte_permute<0x5410>(low, high);
}

/// P = the encodings that scores have in their lowest bytes.
template <int kFloats>
__device__ __forceinline__ void take_encodings(uint32_t (&p)[kFloats / 16][4],
                                               const float (&scores)[kFloats]) {
#pragma unroll
  for (int i = 0; i < kFloats / 16; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const int at = 16 * i + 8 * half + 2 * row;
        p[i][2 * half + row] = pack_low_bytes(scores[at], scores[at + 1], scores[at + 4], scores[at + 5]);
      }
}

//| The transposed tile is contraction-major, like K: keys run along its rows. So the descriptor advances by
//| 32 bytes for 32 keys.
/// A tile of V in the layout in which it is multiplied: pieces of kPieceKeys keys, each transposed by itself.
template <int kHeadDim, int kKeys, int kPieceKeys>
struct TransposedTile {
  using Piece = Tile<kHeadDim, kPieceKeys>;
  static_assert(kKeys % kPieceKeys == 0 && kPieceKeys % kMmaK == 0, "a wgmma's keys lie in one piece");
  static constexpr int kPieces = kKeys / kPieceKeys;
  Piece piece[kPieces];

  __device__ __forceinline__ uint64_t descriptor() const { return piece[0].descriptor(); }

  /// Returns the offset from the descriptor of key 0 to that of `key`.
  __host__ __device__ static constexpr uint32_t key_bytes(int key) {
    return key / kPieceKeys * uint32_t(sizeof(Piece)) + Piece::column_bytes(key % kPieceKeys);
  }
};

/// Issues output += P V, as one group. `v` is transposed: its rows are columns of V.
template <typename Values, int kHeadDim, int kKeys>
__device__ __forceinline__ void issue_accumulate(float (&output)[kHeadDim / 2],
                                                 const uint32_t (&p)[kKeys / kMmaK][4], uint64_t v) {
#pragma unroll
  for (int step = 0; step < kKeys / kMmaK; ++step)
    wgmma<Element, kHeadDim>(output, p[step], wgmma_advance(v, Values::key_bytes(step * kMmaK)), true);
  wgmma_commit();
}

//| ## Row sums, by a product
//|
//| A row sum is a product too: P times a column of ones. `wgmma` needs at least eight columns, and a tile of
//| ones is 1 KB, written once. The product joins the group of P V and adds 8 columns to the tensor cores' d;
//| the softmax has no additions left. It starts from 0 in each tile, where the sum is short and loses hardly
//| any bits, and sums of tiles are added in float32. A column of ones in V would be less work, but its sum
//| would lose bits like every long sum of one sign.
//|
//| The sum is that of the rounded P. O is divided by exactly the weights that it was summed with, so its
//| error is no larger; the log-sum-exp now has the error of rounding P, up to some hundredths instead of some
//| ten-thousandths.

constexpr unsigned char kOne = 0x38;  ///< 1 in e4m3
constexpr int kOnesColumns = 8;       ///< the minimum for wgmma

/// Issues sums = P times ones, as part of the next group. All columns are equal: sums[0] and sums[1] belong
/// to the thread's first row, the other two to its second.
template <int kKeys>
__device__ __forceinline__ void issue_row_sums(float (&sums)[kOnesColumns / 2],
                                               const uint32_t (&p)[kKeys / kMmaK][4], uint64_t ones) {
#pragma unroll
  for (int step = 0; step < kKeys / kMmaK; ++step)
    wgmma<Element, kOnesColumns>(sums, p[step], ones, step > 0);  // all of them are ones: no matter which 32
}

}  // namespace flashbook::fp8
