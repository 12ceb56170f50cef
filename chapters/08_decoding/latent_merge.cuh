//| # Latent attention: parts and their merge
//|
//| A block of [step 7](latent.cuh) that has some of an item's keys leaves a *part*: 64 rows of 512 columns. One long sequence leaves
//| one in every block, 17 MB if they were float32, at a time when nobody computes. So parts are made small, and lie as is quickest.
//|
//| **Parts in 16 bits.** Rounding to f16 changes a value by $2^{-11}$ of itself at most, and a weighted mean of parts by no more. Rounding O to
//| bf16 changes it by up to $2^{-8}$, eight times as much. But f16 has a smaller range than bf16. So each row of a part is divided by a power
//| of two, which is stored beside it and makes the row's largest value lie between $2^{14}$ and $2^{15}$.
//|
//| **As tensor cores deal them out.** A thread stores its values 16 bytes at a time, side by side with its neighbours'. Such a *piece* has
//| eight values: of each of the thread's two rows two columns, and two more that lie eight further, as in every result of `wgmma`.
//| Only the merge reads them. There a lane has the same rows and columns as the lane that stored the piece.
//|
//| ![Which lane holds which elements of the results of a product](../../docs/figures/mma_fragments.svg)
#pragma once
#include "chapters/08_decoding/latent_tiles.cuh"
#include "common/hopper/rows.h"
#include "common/ptx/convert.h"
#include "common/ptx/dependent_launch.h"
#include "common/ptx/math.h"

namespace flashbook::decoding {

/// What the merge must know of a row of a part, or of half of its columns.
struct PartRow {
  float lse;    ///< -inf of a row without keys
  float scale;  ///< a power of two, by which what is stored must be multiplied
};

//| The values of all places come first in the workspace, then what must be known of their rows. An item's places follow from the number
//| of the first block that works on it.

/// Parts of items, in the workspace, each at a place. `shares` is null if no item has more than one.
struct LatentParts {
  static constexpr int kPieces = LatentConfig::kHalf / 16;  ///< of 16 bytes, that a thread has of a part
  uint4* o;                                                 ///< [places, kPieces, LatentConfig::kConsumers]
  PartRow* rows;                                            ///< [places, warpgroups, LatentConfig::kRows]
  int2* shares;  ///< [items]: the first block that has a part of it, and how many have
  int blocks;    ///< that share the keys

  /// Where part `part` of a tile of rows lies. A block has at most two parts of items that other blocks
  /// share: the end of one that began before, and the beginning of one that goes on.
  __device__ int64_t place(int row_tile, int first_block, int part) const {
    return 2 * (int64_t(row_tile) * blocks + first_block + part) + (part == 0);
  }
  __device__ uint4& piece(int64_t place, int piece, int thread) const {
    return o[(place * kPieces + piece) * LatentConfig::kConsumers + thread];
  }
  __device__ PartRow& row(int64_t place, int warpgroup, int row_in_tile) const {
    return rows[(2 * place + warpgroup) * LatentConfig::kRows + row_in_tile];
  }
};

//| ## A power of two for a row
//|
//| The largest value's exponent is taken from its bits. It counts as 15 if it is less, also in a row of zeros: so the power of two is
//| a normal number.

/// The power of two that divides a row. `largest` is the row's largest absolute value.
__device__ __forceinline__ float scale_of_part(float largest) {
  constexpr int kBelow = 14;  // the largest value becomes at least 2^14, and less than 2^15
  const int exponent = max(int(__float_as_uint(largest) >> 23), kBelow + 1);
  return __uint_as_float(uint32_t(exponent - kBelow) << 23);
}

/// Stores the warpgroup's half of a part, `output` times `inverse` by row. All lanes of a warp that has rows.
__device__ __forceinline__ void store_part(const LatentParts& parts, int64_t place, int warpgroup,
                                           int row_in_tile, const float (&output)[128],
                                           const float (&inverse)[2], const float (&lse)[2]) {
  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float largest = 0;
#pragma unroll
    for (int i = 2 * r; i < 128; i += 4)
      largest = fmaxf(largest, fmaxf(fabsf(output[i]), fabsf(output[i + 1])));
    const float scale = scale_of_part(hopper::quad_max(largest) * inverse[r]);
    factor[r] = inverse[r] / scale;
    if (threadIdx.x % 4 == 0) parts.row(place, warpgroup, row_in_tile + 8 * r) = {lse[r], scale};
  }
  //| Of a piece's eight values the first two belong to the first row, the next two to the second, and so on in turn.
#pragma unroll
  for (int piece = 0; piece < LatentParts::kPieces; ++piece) {
    const float* own = output + 8 * piece;
    const auto two = [&](int i) {
      return pack<__half>(own[i] * factor[i / 2 % 2], own[i + 1] * factor[i / 2 % 2]);
    };
    parts.piece(place, piece, threadIdx.x) = make_uint4(two(0), two(2), two(4), two(6));
  }
}

//| ## The merge
//|
//| A warp merges 16 rows and 16 columns: of every part the 32 pieces that one warp has stored together. It is chapter 2's rule once more,
//| with running maxima, as its online softmax has them.

/// A lane's sums over some parts: two rows, each of four columns.
struct alignas(16) MergedPiece {
  float max[2];  ///< of the log-sum-exps, times log2(e)
  float weight[2];
  float o[8];  ///< as a thread's pieces: value i belongs to row i / 2 % 2

  __device__ __forceinline__ static MergedPiece none() { return {{-INFINITY, -INFINITY}, {}, {}}; }

  /// Makes room for log-sum-exps up to `most`: all weights count from there. Returns what to subtract.
  __device__ __forceinline__ float raise(int r, float most) {
    most = fmaxf(most, max[r]);
    const float base = most == -INFINITY ? 0.0f : most, correction = exp2_approx(max[r] - base);
    max[r] = most;
    weight[r] *= correction;
#pragma unroll
    for (int i = 2 * r; i < 8; i += 4) o[i] *= correction, o[i + 1] *= correction;
    return base;
  }

  //| Warps that have merged different parts of the same piece are merged by the same rule.
  /// Adds what the same lane of another warp has of other parts.
  __device__ __forceinline__ void add(const MergedPiece& other) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float weight_of_all = exp2_approx(other.max[r] - raise(r, other.max[r]));
      weight[r] += weight_of_all * other.weight[r];
#pragma unroll
      for (int i = 2 * r; i < 8; i += 4) {
        o[i] += weight_of_all * other.o[i];
        o[i + 1] += weight_of_all * other.o[i + 1];
      }
    }
  }
};

//| A lane asks for its pieces of two or eight parts at once (`kAtOnce`), and for the log-sum-exps and powers of two of their rows, before
//| it needs any of them. Where fewer parts are left, the last one is asked for again, and weighs nothing.

/// Merges `count` parts, from `first_part` on, of a tile's piece that belongs to `thread`. One warp.
template <int kAtOnce>
__device__ __forceinline__ MergedPiece merge_pieces(const LatentParts& parts, int row_tile, int2 share,
                                                    int first_part, int count, int piece, int thread,
                                                    int row_in_tile) {
  constexpr float kLog2E = 1.4426950408889634f;
  MergedPiece merged = MergedPiece::none();
  for (int first = 0; first < count; first += kAtOnce) {
    uint4 o[kAtOnce];
    PartRow rows[kAtOnce][2];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t place = parts.place(row_tile, share.x, first_part + min(first + i, count - 1));
      o[i] = parts.piece(place, piece, thread);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        rows[i][r] = parts.row(place, thread / kWarpgroupThreads, row_in_tile + 8 * r);
        rows[i][r].lse = first + i < count ? rows[i][r].lse * kLog2E : -INFINITY;
      }
    }
    //| Then each of its two rows takes them in: first the new maximum, then the values, each times its part's weight and the power of two.
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = rows[0][r].lse;
#pragma unroll
      for (int i = 1; i < kAtOnce; ++i) most = fmaxf(most, rows[i][r].lse);
      const float base = merged.raise(r, most);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const float weight = exp2_approx(rows[i][r].lse - base), scaled = weight * rows[i][r].scale;
        if (weight == 0) continue;  // there may be no such part, and 0 times infinity is NaN
        merged.weight[r] += weight;
        const float2 left = unpack_f16(r == 0 ? o[i].x : o[i].y);
        const float2 right = unpack_f16(r == 0 ? o[i].z : o[i].w);
        merged.o[2 * r] += scaled * left.x, merged.o[2 * r + 1] += scaled * left.y;
        merged.o[2 * r + 4] += scaled * right.x, merged.o[2 * r + 5] += scaled * right.y;
      }
    }
  }
  return merged;
}

//| All pieces of all items are merged at once; an item that one block had alone is done already. It is a *dependent launch*: the
//| machine starts its blocks while the last blocks of the first kernel still run.
//|
//| Where few blocks share an item, a warp merges all parts of a piece. One long sequence of 128 heads has two tiles of rows, and each
//| of them a part in 66 blocks. There eight warps have an eighth of the parts each, and their results are merged once more.

constexpr int kPieceWarps = 8;
constexpr int kFewParts = 8;  ///< of a row, that one warp merges

/// Grid: {pieces of an item / (kPieceWarps / kWarpsOfPiece), items}. An item has 32 pieces for every 16 rows.
template <typename T, int kWarpsOfPiece>
__global__ void __launch_bounds__(kPieceWarps * 32, kWarpsOfPiece == 1 ? 5 : 2)
    merge_latent(LatentParts parts,
                 T* o,        // [batch, heads, seqlen_q, 512], strided
                 float* lse,  // [batch, heads, seqlen_q]
                 Problem problem) {
  constexpr float kLn2 = 0.6931471805599453f;
  constexpr int kPiecesOfRows = 2 * LatentParts::kPieces, kAtOnce = kWarpsOfPiece == 1 ? 2 : 8;
  __shared__ MergedPiece of_warps[kPieceWarps][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, share_of_parts = warp % kWarpsOfPiece;
  const int number = (int(blockIdx.x) * kPieceWarps + warp) / kWarpsOfPiece;
  const int row = number / kPiecesOfRows * 16, row_tile = row / LatentConfig::kRows;
  const int warpgroup = number % kPiecesOfRows / LatentParts::kPieces, piece = number % LatentParts::kPieces;
  const int row_in_tile = row % LatentConfig::kRows + lane / 4;
  //| A block that has nothing to merge waits too: whoever comes after this launch may rely on its end.
  wait_for_launch_before();                     // all parts are there: this block may have started before
  const int2 share = parts.shares[blockIdx.y];  // {first block, parts}
  if (row >= problem.rows() || share.y == 1) return;
  const int first = share.y * share_of_parts / kWarpsOfPiece;
  const int count = share.y * (share_of_parts + 1) / kWarpsOfPiece - first;
  MergedPiece merged =
      merge_pieces<kAtOnce>(parts, row_tile, share, first, count, piece,
                            warpgroup * kWarpgroupThreads + row_in_tile / 16 * 32 + lane, row_in_tile);
  if constexpr (kWarpsOfPiece > 1) {
    of_warps[warp][lane] = merged;
    __syncthreads();  // all warps' sums are there
    if (warp > 0) return;
    for (int w = 1; w < kWarpsOfPiece; ++w) merged.add(of_warps[w][lane]);
  }
  //| Two rows of a lane go to O, two columns at a time; the four lanes of a row fill 32 bytes.
  const Pack of = problem.pack_of(blockIdx.y);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int own_row = row + lane / 4 + 8 * r;
    if (own_row >= problem.rows()) continue;
    const float inverse = merged.weight[r] > 0 ? 1 / merged.weight[r] : 0;
    T* to = o + problem.offset(problem.o_strides, of, own_row) + warpgroup * LatentConfig::kHalf +
            piece * 16 + lane % 4 * 2;
#pragma unroll
    for (int i = 2 * r; i < 8; i += 4)
      *reinterpret_cast<uint32_t*>(to + i / 4 * 8) =
          pack<T>(merged.o[i] * inverse, merged.o[i + 1] * inverse);
    if (number % kPiecesOfRows == 0 && lane % 4 == 0)
      lse[problem.number(of, own_row)] =
          merged.weight[r] > 0 ? (merged.max[r] + __log2f(merged.weight[r])) * kLn2 : -INFINITY;
  }
}

}  // namespace flashbook::decoding
