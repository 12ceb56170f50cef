//| # Latent attention: parts and their merge
//|
//| An *item* is a tile of 64 rows with all its keys. A block of [step 7](step7_latent.cuh) that has some of
//| these keys produces a *part*: 64 rows of 512 columns. One long sequence leaves a part in every block, 17
//| MB in float32, at a time when no block computes. So parts are small, and laid out for the fastest reads
//| and writes.
//|
//| **Parts in 16 bits.** Rounding to f16 changes a value by at most $2^{-11}$ of itself, so it changes a
//| weighted mean of parts by at most $2^{-11}$ of the largest. Rounding O to bf16 changes it by up to
//| $2^{-8}$ of itself, eight times as much. But f16 has a smaller range than bf16. So each row of a part is
//| divided by a power of two, stored with the row, that brings its largest value to between $2^{14}$ and
//| $2^{15}$.
//|
//| **In the tensor cores' layout.** A thread stores its values 16 bytes at a time, next to those of its
//| neighbours. Such a *piece* has eight values: for each of the thread's two rows two columns, and two more
//| that are eight further, as in every result of `wgmma`. Only the merge reads pieces, and there a lane has
//| the same rows and columns as the lane that stored the piece.
//|
//| ![Which lane holds which elements of the results of a product](../../docs/figures/mma_fragments.svg)
#pragma once
#include "chapters/08_decoding/step7_latent_tiles.cuh"
#include "common/ptx/atomic.h"
#include "common/ptx/barrier.h"
#include "common/ptx/convert.h"
#include "common/ptx/math.h"

namespace flashbook::decoding {

/// A row of a part, or of half of its columns: what the merge needs to know about it.
struct PartRow {
  float lse;    ///< -inf for a row without keys
  float scale;  ///< the power of two by which stored values are multiplied
};

//| The workspace has the counters first, then the values of all places, then their rows' data. An item's
//| counter and places follow from the number of the first block that works on it.

/// Parts of items, in the workspace, each at a place.
struct LatentParts {
  static constexpr int kPieces =
      LatentKernelTraits::kHalf / 16;  ///< pieces of 16 bytes that a thread has of a part
  unsigned* arrivals;  ///< [tiles of rows, blocks]: for an item that begins in one block and continues in
                       ///< others, first the number of blocks that have stored their part, then the number
                       ///< that have seen all parts. 0 before a launch and after it
  uint4* o;            ///< [places, kPieces, LatentKernelTraits::kConsumers]
  PartRow* rows;       ///< [places, warpgroups, LatentKernelTraits::kRows]
  int blocks;          ///< blocks that share the keys, per tile of rows

  __device__ unsigned* arrivals_of(const Segment& item) const {
    return arrivals + item.row_tile * blocks + item.first_block;
  }
  /// Returns the place of part `part` of a tile of rows. A block has at most two parts of items that it
  /// shares with other blocks: the end of one that began before, and the beginning of one that continues.
  __device__ int64_t place(int row_tile, int first_block, int part) const {
    return 2 * (int64_t(row_tile) * blocks + first_block + part) + (part == 0);
  }
  __device__ uint4& piece(int64_t place, int piece, int thread) const {
    return o[(place * kPieces + piece) * LatentKernelTraits::kConsumers + thread];
  }
  __device__ PartRow& row(int64_t place, int warpgroup, int row_in_tile) const {
    return rows[(2 * place + warpgroup) * LatentKernelTraits::kRows + row_in_tile];
  }
};

//| ## A power of two for a row
//|
//| The largest value's exponent is read from its bits, where 127 stands for $2^0$. It is raised to at least
//| 15, even in a row of zeros, so that the power of two is a normal number. `inverse` is 1 over the row's sum
//| of probabilities, by which `output` has not been divided yet.

/// Returns the power of two that divides a row. `largest` is the row's largest absolute value.
__device__ __forceinline__ float scale_of_part(float largest) {
  constexpr int kBelow = 14;  // the largest value becomes at least 2^14, and less than 2^15
  const int exponent = max(int(__float_as_uint(largest) >> 23), kBelow + 1);
  return __uint_as_float(uint32_t(exponent - kBelow) << 23);
}

/// Stores the warpgroup's half of a part, `output` times `inverse` by row. All lanes of a warp that has rows.
__device__ __forceinline__ void store_part(const LatentParts& parts, int64_t place, int warpgroup,
                                           int row_in_tile, const float (&output)[128],
                                           const float (&inverse)[2]) {
  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float largest = 0;
#pragma unroll
    for (int i = 2 * r; i < 128; i += 4)
      largest = fmaxf(largest, fmaxf(fabsf(output[i]), fabsf(output[i + 1])));
    const float scale = scale_of_part(quad_max(largest) * inverse[r]);
    factor[r] = inverse[r] / scale;
    if (threadIdx.x % 4 == 0) parts.row(place, warpgroup, row_in_tile + 8 * r).scale = scale;
  }
  //| A piece's eight values alternate: two of the first row, two of the second, and so on.
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
//| A warp merges a *square* of 16 rows and 16 columns: for every part, the 32 pieces that one warp has stored
//| together. The rule is that of chapter 2's online softmax. A part's weight is $e^{\text{lse}}$, taken
//| relative to the largest log-sum-exp so far to keep it small.

/// A lane's sums over some parts: two rows, each of four columns.
struct alignas(16) MergedPiece {
  float max[2];     ///< maximum of the log-sum-exps, times log2(e)
  float weight[2];  ///< the sum of the parts' weights
  float o[8];       ///< in the layout of a thread's pieces: value i belongs to row i / 2 % 2

  __device__ __forceinline__ static MergedPiece none() { return {{-INFINITY, -INFINITY}, {}, {}}; }

  /// Raises row `r`'s maximum to at least `most`, and rescales its weight and O. Returns what to subtract.
  __device__ __forceinline__ float raise(int r, float most) {
    most = fmaxf(most, max[r]);
    const float base = most == -INFINITY ? 0.0f : most, correction = exp2_approx(max[r] - base);
    max[r] = most;
    weight[r] *= correction;
#pragma unroll
    for (int i = 2 * r; i < 8; i += 4) o[i] *= correction, o[i + 1] *= correction;
    return base;
  }

  //| Warps that have merged different parts of the same square combine by the same rule.
  /// Adds the results of the same lane of another warp, for other parts.
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

//| A lane requests its pieces of `kAtOnce` parts and `kCount` squares at once, with their rows' log-sum-exps
//| and powers of two, before it needs any of them. If fewer parts are left, the last one is requested again
//| with a weight of 0.

/// A range of `count` parts of an item, from part `first` on.
struct PartRange {
  int row_tile, first_block, first, count;
};

//| A tile of 64 rows has 128 squares: 32 next to each other in each of four groups of 16 rows, numbered group
//| by group. A block merges consecutive squares, so they share rows, and the data of these rows are read
//| once.

/// A square of a tile of rows. The squares of the same rows are consecutive: 16 of the left half of O, 16 of
/// the right one.
struct Square {
  int number;

  __device__ int warpgroup() const { return number % (2 * LatentParts::kPieces) / LatentParts::kPieces; }
  __device__ int piece() const {
    return number % LatentParts::kPieces;
  }  ///< per thread, in store_part's order
  __device__ int first_row() const { return number / (2 * LatentParts::kPieces) * 16; }
  __device__ int first_column() const { return number % (2 * LatentParts::kPieces) * 16; }
};

//| All loads of a round are issued before the first addition, as for queries, so that their latencies
//| overlap.

/// Merges parts of `kCount` neighbouring squares, which have the same rows and the same half of the columns.
/// One warp.
template <int kCount, int kAtOnce>
__device__ __forceinline__ void merge_squares(MergedPiece (&merged)[kCount], const LatentParts& parts,
                                              const PartRange& range, const Square& square) {
  constexpr float kLog2E = 1.4426950408889634f;
  const int lane = threadIdx.x % 32;
  const int thread = square.warpgroup() * kWarpgroup + square.first_row() / 16 * 32 + lane;
  float max = -INFINITY, sum = 0;  // for row lane % 16; the sum covers every other part
#pragma unroll
  for (int n = 0; n < kCount; ++n) merged[n] = MergedPiece::none();
  for (int first = 0; first < range.count; first += kAtOnce) {
    uint4 o[kAtOnce][kCount];
    PartRow rows[kAtOnce / 2];
    //| Only the last parts compute their places one by one. Otherwise places are equally far apart, so their
    //| offsets are constants in the loads and cost no instruction. Part 0 is one place further on.
    const auto place = [&](int i) {
      return parts.place(range.row_tile, range.first_block, range.first + min(first + i, range.count - 1));
    };
    const auto load = [&](const auto& place_of) {  // loads part `i` + `more`; i is a constant
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int n = 0; n < kCount; ++n) o[i][n] = parts.piece(place_of(i, 0), square.piece() + n, thread);
#pragma unroll
      for (int i = 0; i < kAtOnce / 2; ++i)
        rows[i] = parts.row(place_of(2 * i, lane / 16), square.warpgroup(), square.first_row() + lane % 16);
    };
    if (first + kAtOnce > range.count) {
      load([&](int i, int more) { return place(i + more); });
    } else {
      const int64_t origin = place(1) - 2;  // where part 0 would be if places were equally far apart
      load([&](int i, int more) { return i == 0 ? place(more) : origin + 2 * more + 2 * i; });
    }
    //| First come the weights: a lane has one row of every other part.
    float most = max;
#pragma unroll
    for (int i = 0; i < kAtOnce / 2; ++i) {
      rows[i].lse = first + 2 * i + lane / 16 < range.count ? rows[i].lse * kLog2E : -INFINITY;
      most = fmaxf(most, rows[i].lse);
    }
    most = fmaxf(most, __shfl_xor_sync(kWholeWarp, most, 16));
    const float base = most == -INFINITY ? 0.0f : most, correction = exp2_approx(max - base);
    max = most;
    sum *= correction;
#pragma unroll
    for (int i = 0; i < kAtOnce / 2; ++i) {
      const float weight = exp2_approx(rows[i].lse - base);
      sum += weight;
      rows[i].scale *= weight;
    }
    //| Then the lane's two rows of a piece get their factors from the lanes that have them.
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float factor = __shfl_sync(kWholeWarp, correction, lane / 4 + 8 * r);
#pragma unroll
      for (int n = 0; n < kCount; ++n)
#pragma unroll
        for (int i = 2 * r; i < 8; i += 4) merged[n].o[i] *= factor, merged[n].o[i + 1] *= factor;
    }
    //| A missing part has weight 0; its values repeat those of the last part, so they are finite.
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float factor = __shfl_sync(kWholeWarp, rows[i / 2].scale, i % 2 * 16 + lane / 4 + 8 * r);
#pragma unroll
        for (int n = 0; n < kCount; ++n) {
          const float2 left = unpack_f16(r == 0 ? o[i][n].x : o[i][n].y);
          const float2 right = unpack_f16(r == 0 ? o[i][n].z : o[i][n].w);
          merged[n].o[2 * r] += factor * left.x, merged[n].o[2 * r + 1] += factor * left.y;
          merged[n].o[2 * r + 4] += factor * right.x, merged[n].o[2 * r + 5] += factor * right.y;
        }
      }
    }
  }
  sum += __shfl_xor_sync(kWholeWarp, sum, 16);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float row_max = __shfl_sync(kWholeWarp, max, lane / 4 + 8 * r),
                row_sum = __shfl_sync(kWholeWarp, sum, lane / 4 + 8 * r);
#pragma unroll
    for (int n = 0; n < kCount; ++n) merged[n].max[r] = row_max, merged[n].weight[r] = row_sum;
  }
}

//| The merged square goes to O: two rows of a lane, two columns at a time. A row's four lanes write 32
//| contiguous bytes of it.

/// Stores a merged square of a tile of rows whose first is row `first_row` of the pack. One warp.
template <typename T, typename ProblemType>
__device__ __forceinline__ void store_square(const MergedPiece& merged, const Square& square,
                                             const ProblemType& problem, const Pack& of, int first_row,
                                             T* o,          // [batch, heads, seqlen_q, 512], strided
                                             float* lse) {  // [batch, heads, seqlen_q]
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + square.first_row() + lane / 4 + 8 * r;
    if (row >= problem.rows()) continue;
    const float inverse = merged.weight[r] > 0 ? 1 / merged.weight[r] : 0;
    T* to = o + problem.offset(problem.o_strides, of, row) + square.first_column() + lane % 4 * 2;
#pragma unroll
    for (int i = 2 * r; i < 8; i += 4)
      *reinterpret_cast<uint32_t*>(to + i / 4 * 8) =
          pack<T>(merged.o[i] * inverse, merged.o[i + 1] * inverse);
    if (square.first_column() == 0 && lane % 4 == 0)
      lse[problem.number(of, row)] = log_sum_exp(merged.max[r], merged.weight[r]);
  }
}

//| ## All blocks merge
//|
//| A single block would take too long to merge 64 parts of 64 KB, and a second kernel could only begin when
//| the first one has ended. So the blocks that have parts of an item merge it together. Each stores its part,
//| counts itself, waits until all have done so, and merges its share of the item's squares. Short sequences
//| take up to a sixth less time than with a second kernel: [the
//| appendix](appendix.md#one-long-sequence-of-latents) has the numbers.
//|
//| **Blocks that wait for one another must run at the same time.** Otherwise they may wait forever for a
//| block that cannot start. A *cooperative* launch ([`launch.h`](../../common/device/launch.h)) guarantees
//| it: the GPU starts all blocks together, or the launch fails. And a block stores all its parts before it
//| waits, so no two blocks can deadlock.
//|
//| The counter counts the blocks that have stored their parts, and then those that have seen that all parts
//| are stored. The last block resets it to 0.

constexpr int kManyParts = 16;  ///< from this number on, several warps may share a square

/// Counts the block's part of an item as stored. All consumers.
__device__ __forceinline__ void announce_part(const LatentParts& parts, const Segment& item) {
  named_barrier_sync<kValues, LatentKernelTraits::kConsumers>();  // all warps have stored their shares
  if (threadIdx.x == 0) red_add_release(parts.arrivals_of(item), 1u);
}

/// Waits until the item's counter shows that all its parts are stored. All consumers.
__device__ __forceinline__ void wait_for_parts(const LatentParts& parts, const Segment& item) {
  if (threadIdx.x == 0) {
    unsigned* arrivals = parts.arrivals_of(item);
    while (load_acquire(arrivals) < unsigned(item.parts)) {
    }
  }
  named_barrier_sync<kValues,
                     LatentKernelTraits::kConsumers>();  // thread 0 has seen all parts, so all may read them
}

/// Counts the block as one that has seen all parts of an item. One thread, after the block's last merge, so
/// that no block waits for the addition.
__device__ __forceinline__ void count_seen(const LatentParts& parts, const Segment& item) {
  unsigned* arrivals = parts.arrivals_of(item);
  if (atomicAdd(arrivals, 1u) == unsigned(2 * item.parts - 1))
    atomicExch(arrivals, 0u);  // reset for the next launch
}

//| With few parts a block has many squares, and a warp takes four at a time. With many parts it has few
//| squares, so several warps share one, each with some of the parts, and combine their results in shared
//| memory, in the first stage of keys. The barrier in `wait_for_parts` also keeps warps from the block's next
//| item until all have read the results of this one.

/// Merges the block's share of an item's squares. `ProblemType` is Problem or SparseProblem. All consumers.
template <typename T, typename ProblemType>
__device__ __forceinline__ void merge_share(MergedPiece (&warp_parts)[LatentKernelTraits::kWarps][32],
                                            const LatentParts& parts, const Segment& item,
                                            const ProblemType& problem,
                                            T* o,          // [batch, heads, seqlen_q, 512], strided
                                            float* lse) {  // [batch, heads, seqlen_q]
  constexpr int kWarps = LatentKernelTraits::kWarps, kNeighbours = 4;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  wait_for_parts(parts, item);
  const Pack of = problem.pack_of(item.pack);
  const int first_row = item.row_tile * LatentKernelTraits::kRows;
  const int row_groups = (min(problem.rows() - first_row, LatentKernelTraits::kRows) + 15) / 16;
  const int squares = row_groups * 2 * LatentParts::kPieces;
  //| Few parts: two of them leave a block 64 squares, eight per warp.
  if (item.parts < kManyParts) {
    const int groups = squares / kNeighbours;
    const int end = (item.part + 1) * groups / item.parts;
    for (int group = item.part * groups / item.parts + warp; group < end; group += kWarps) {
      MergedPiece merged[kNeighbours];
      merge_squares<kNeighbours, 4>(merged, parts, {item.row_tile, item.first_block, 0, item.parts},
                                    {group * kNeighbours});
#pragma unroll
      for (int n = 0; n < kNeighbours; ++n)
        store_square(merged[n], {group * kNeighbours + n}, problem, of, first_row, o, lse);
    }
    return;
  }
  //| Many parts: 64 of them leave a block two squares, with four warps each, and a lane requests its piece of
  //| sixteen parts at once.
  const int begin = item.part * squares / item.parts, own = (item.part + 1) * squares / item.parts - begin;
  if (own == 0) return;
  const int sharers = kWarps / own, share = warp % sharers;  // warps per square; own is at most kWarps
  const Square square = {begin + warp / sharers};
  if (square.number < begin + own) {
    const int first = item.parts * share / sharers;
    MergedPiece merged[1];
    merge_squares<1, 16>(merged, parts,
                         {item.row_tile, item.first_block, first, item.parts * (share + 1) / sharers - first},
                         square);
    warp_parts[warp][lane] = merged[0];
  }
  named_barrier_sync<kValues, LatentKernelTraits::kConsumers>();  // all warps' sums are stored
  if (square.number >= begin + own || share > 0) return;
  MergedPiece merged = warp_parts[warp][lane];
  for (int w = 1; w < sharers; ++w) merged.add(warp_parts[warp + w][lane]);
  store_square(merged, square, problem, of, first_row, o, lse);
}

}  // namespace flashbook::decoding
