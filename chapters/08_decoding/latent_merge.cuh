//| # Latent attention: parts and their merge
//|
//| A block of [step 7](latent.cuh) that has some of an item's keys leaves a *part*: 64 rows of 512 columns. One long sequence leaves
//| one in every block, 17 MB if they were float32, at a time when nobody computes. So parts are made small, and lie as is quickest.
//|
//| **Parts in 16 bits.** Rounded to f16 a part errs by 2^-11 of a value at most, and so does a weighted mean of parts. O in bf16 is
//| rounded by 2^-8, eight times as much. What f16 lacks is bf16's range; so each row of a part has a power of two beside it, by which
//| its largest value comes to lie below 2^15.
//|
//| **As tensor cores deal them out.** A thread stores what it has, 16 bytes at a time, side by side with its neighbours'. These are
//| two rows and four columns, two and two, as in every result of `wgmma`. Nobody else must understand them but the merge, and there
//| a lane reads for the same rows and columns what such a lane has stored.
//|
//| ![Which lane holds which elements of the results of a product](../../docs/figures/mma_fragments.svg)
#pragma once
#include "chapters/08_decoding/latent_tiles.cuh"
#include "common/hopper/rows.h"
#include "common/ptx/atomic.h"
#include "common/ptx/barrier.h"
#include "common/ptx/convert.h"
#include "common/ptx/math.h"

namespace flashbook::decoding {

/// What the merge must know of a row of a part, or of half of its columns.
struct PartRow {
  float lse;    ///< -inf of a row without keys
  float scale;  ///< a power of two, by which what is stored must be multiplied
};

//| A place has the values of 64 rows, then come all places' rows. Before them lie the counters by which blocks know that all parts of
//| an item are there.

/// Parts of items, in the workspace, each at a place.
struct LatentParts {
  static constexpr int kPieces = LatentConfig::kHalf / 16;  ///< of 16 bytes, that a thread has of a part
  unsigned* arrivals;  ///< [tiles of rows, blocks]: of blocks that have stored their part of the item that
                       ///< begins in a block and goes on in others, then of those that have seen it. 0
                       ///< before a launch and after it
  uint4* o;            ///< [places, kPieces, LatentConfig::kConsumers]
  PartRow* rows;       ///< [places, warpgroups, LatentConfig::kRows]
  int blocks;          ///< that share the keys, for each tile of rows

  __device__ unsigned* arrivals_of(const Segment& item) const {
    return arrivals + item.row_tile * blocks + item.first_block;
  }
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
//| The exponent of the largest value is taken from its bits; a row of zeros counts as the smallest that is allowed.

/// The power of two by which a row is divided whose largest absolute value is `largest`.
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
  //| Eight values are two rows of four: pairs of a row lie two apart.
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
//| A *piece* is 16 rows and 16 columns: what one warp of every part has stored with one instruction. A warp merges a piece of
//| some parts. That is chapter 2's rule once more, with running maxima, as its online softmax has them.

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

//| A lane asks for several parts of several pieces at once, with what it must know of their two rows, before it needs any of it.
//| Where there are fewer left, the last one is asked for again, and weighs nothing.

/// Some of an item's parts.
struct PartRange {
  int row_tile, first_block, first, count;
};

/// A piece of a tile of rows, counted so that the pieces of the same rows follow one another: 16 of the left
/// half of O, 16 of the right one.
struct Piece {
  int number;

  __device__ int warpgroup() const { return number % (2 * LatentParts::kPieces) / LatentParts::kPieces; }
  __device__ int of_thread() const { return number % LatentParts::kPieces; }  ///< as store_part counts
  __device__ int first_row() const { return number / (2 * LatentParts::kPieces) * 16; }
  __device__ int first_column() const { return number % (2 * LatentParts::kPieces) * 16; }
};

/// Merges parts of `kCount` neighbouring pieces, which have the same rows and the same half of the columns.
/// One warp.
template <int kCount, int kAtOnce>
__device__ __forceinline__ void merge_pieces(MergedPiece (&merged)[kCount], const LatentParts& parts,
                                             const PartRange& range, const Piece& piece) {
  constexpr float kLog2E = 1.4426950408889634f;
  const int lane = threadIdx.x % 32, row = piece.first_row() + lane / 4;
  const int thread = piece.warpgroup() * kWarpgroupThreads + piece.first_row() / 16 * 32 + lane;
#pragma unroll
  for (int n = 0; n < kCount; ++n) merged[n] = MergedPiece::none();
  for (int first = 0; first < range.count; first += kAtOnce) {
    uint4 o[kAtOnce][kCount];
    PartRow rows[kAtOnce][2];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int part = range.first + min(first + i, range.count - 1);
      const int64_t place = parts.place(range.row_tile, range.first_block, part);
#pragma unroll
      for (int n = 0; n < kCount; ++n) o[i][n] = parts.piece(place, piece.of_thread() + n, thread);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        rows[i][r] = parts.row(place, piece.warpgroup(), row + 8 * r);
        rows[i][r].lse = first + i < range.count ? rows[i][r].lse * kLog2E : -INFINITY;
      }
    }
    //| Then each of its two rows takes them in: the maximum first, then weights, each times the row's power of two.
#pragma unroll
    for (int n = 0; n < kCount; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float most = rows[0][r].lse;
#pragma unroll
        for (int i = 1; i < kAtOnce; ++i) most = fmaxf(most, rows[i][r].lse);
        const float base = merged[n].raise(r, most);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const float weight = exp2_approx(rows[i][r].lse - base), scaled = weight * rows[i][r].scale;
          if (weight == 0) continue;  // there may be no such part, and 0 times infinity is NaN
          merged[n].weight[r] += weight;
          const float2 left = unpack_f16(r == 0 ? o[i][n].x : o[i][n].y);
          const float2 right = unpack_f16(r == 0 ? o[i][n].z : o[i][n].w);
          merged[n].o[2 * r] += scaled * left.x, merged[n].o[2 * r + 1] += scaled * left.y;
          merged[n].o[2 * r + 4] += scaled * right.x, merged[n].o[2 * r + 5] += scaled * right.y;
        }
      }
  }
}

//| What is merged goes to O, two rows of a lane, two columns at a time; the four lanes of a row fill 32 bytes.

/// Stores a merged piece of a tile of rows whose first is row `first_row` of the pack. One warp.
template <typename T>
__device__ __forceinline__ void store_piece(const MergedPiece& merged, const Piece& piece,
                                            const Problem& problem, const Pack& of, int first_row, T* o,
                                            float* lse) {
  constexpr float kLn2 = 0.6931471805599453f;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + piece.first_row() + lane / 4 + 8 * r;
    if (row >= problem.rows()) continue;
    const float inverse = merged.weight[r] > 0 ? 1 / merged.weight[r] : 0;
    T* to = o + problem.offset(problem.o_strides, of, row) + piece.first_column() + lane % 4 * 2;
#pragma unroll
    for (int i = 2 * r; i < 8; i += 4)
      *reinterpret_cast<uint32_t*>(to + i / 4 * 8) =
          pack<T>(merged.o[i] * inverse, merged.o[i + 1] * inverse);
    if (piece.first_column() == 0 && lane % 4 == 0)
      lse[problem.number(of, row)] =
          merged.weight[r] > 0 ? (merged.max[r] + __log2f(merged.weight[r])) * kLn2 : -INFINITY;
  }
}

//| ## Everybody merges
//|
//| One block cannot merge 66 parts of 64 KB, and a second kernel would start when the first one has ended: its launch, and the way of
//| its first loads, came to 5 microseconds and more. So the blocks that have parts of an item merge it together. Each stores its part,
//| counts itself, waits until all have, and merges as many of the item's pieces as the others do.
//|
//| **Blocks that wait for one another must run at the same time**, or those that run wait for ever for one that has no
//| room. A *cooperative* launch ([`launch.h`](../../common/device/launch.h)) promises it: the machine starts all blocks or none. Before a block waits it has stored all
//| its parts, so no two wait for each other's.
//|
//| The counter goes up to the number of parts as blocks store theirs, and once more as they see that all are there. Who counts last sets it back to 0.

constexpr int kManyParts = 16;  ///< from which on a piece has several warps

/// Counts the block's part of an item as stored. All consumers.
__device__ __forceinline__ void announce_part(const LatentParts& parts, const Segment& item) {
  named_barrier_sync<kBothWarpgroups, LatentConfig::kConsumers>();  // all warps have stored theirs
  if (threadIdx.x == 0) red_add_release(parts.arrivals_of(item), 1u);
}

/// Waits until all parts of an item are stored. All consumers.
__device__ __forceinline__ void wait_for_parts(const LatentParts& parts, const Segment& item) {
  if (threadIdx.x == 0) {
    unsigned* arrivals = parts.arrivals_of(item);
    while (load_acquire(arrivals) < unsigned(item.parts)) {
    }
    if (atomicAdd(arrivals, 1u) == unsigned(2 * item.parts - 1))
      atomicExch(arrivals, 0u);  // as the next launch wants it
  }
  named_barrier_sync<kBothWarpgroups, LatentConfig::kConsumers>();  // what thread 0 took over, all may read
}

//| With few parts a block has many pieces, and a warp takes four at a time. With many it has few, so a piece is
//| shared by two, four or eight warps. What these come to lies in shared memory for a moment, where Q was.

/// Merges the block's share of an item's pieces. All consumers.
template <typename T>
__device__ __forceinline__ void merge_share(MergedPiece (&of_warps)[LatentConfig::kWarps][32],
                                            const LatentParts& parts, const Segment& item,
                                            const Problem& problem, T* o, float* lse) {
  constexpr int kWarps = LatentConfig::kWarps, kNeighbours = 4;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  wait_for_parts(parts, item);
  const Pack of = problem.pack_of(item.pack);
  const int first_row = item.row_tile * LatentConfig::kRows;
  const int row_groups = (min(problem.rows() - first_row, LatentConfig::kRows) + 15) / 16;
  const int pieces = row_groups * 2 * LatentParts::kPieces;
  if (item.parts < kManyParts) {
    const int groups = pieces / kNeighbours;
    const int end = (item.part + 1) * groups / item.parts;
    for (int group = item.part * groups / item.parts + warp; group < end; group += kWarps) {
      MergedPiece merged[kNeighbours];
      merge_pieces<kNeighbours, 4>(merged, parts, {item.row_tile, item.first_block, 0, item.parts},
                                   {group * kNeighbours});
#pragma unroll
      for (int n = 0; n < kNeighbours; ++n)
        store_piece(merged[n], {group * kNeighbours + n}, problem, of, first_row, o, lse);
    }
    return;
  }
  const int begin = item.part * pieces / item.parts, own = (item.part + 1) * pieces / item.parts - begin;
  if (own == 0) return;
  const int sharers = kWarps / own, share = warp % sharers;  // warps of a piece; own is at most kWarps
  const Piece piece = {begin + warp / sharers};
  if (piece.number < begin + own) {
    const int first = item.parts * share / sharers;
    MergedPiece merged[1];
    merge_pieces<1, 16>(merged, parts,
                        {item.row_tile, item.first_block, first, item.parts * (share + 1) / sharers - first},
                        piece);
    of_warps[warp][lane] = merged[0];
  }
  named_barrier_sync<kBothWarpgroups, LatentConfig::kConsumers>();  // all warps' sums are there
  if (piece.number >= begin + own || share > 0) return;
  MergedPiece merged = of_warps[warp][lane];
  for (int w = 1; w < sharers; ++w) merged.add(of_warps[warp + w][lane]);
  store_piece(merged, piece, problem, of, first_row, o, lse);
}

}  // namespace flashbook::decoding
