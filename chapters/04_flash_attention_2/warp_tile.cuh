//| # What a warp does with its rows
//|
//| The pieces that the steps share. A warp owns blocks of 16 query rows and holds for each, in registers: scores of 16 rows
//| and some keys, probabilities in their place, and O. mma.sync deals a 16 x 8 block of results out as 4 floats a lane: lane l
//| holds row l / 4 in floats 0 and 1 and row l / 4 + 8 in floats 2 and 3, columns 2 * (l % 4) and the next. So a row lies in four
//| neighbouring lanes, and two shuffles reduce it. Below, `half` 0 is the upper of a lane's two rows and 1 the lower.
#pragma once
#include "chapters/04_flash_attention_2/problem.cuh"
#include "common/ptx/convert.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/math.h"
#include "common/ptx/mma.h"

namespace flashbook::fa2 {

constexpr unsigned kWarp = 0xffffffff;  // all lanes take part
constexpr float kSlack = 8;             // powers of 2 that a probability may exceed 1 by before O is rescaled

/// Results of mma.sync for kRowBlocks x kColumnBlocks blocks of 16 x 8.
template <int kRowBlocks, int kColumnBlocks>
using Blocks = float[kRowBlocks][kColumnBlocks][4];

//| ## Swizzled tiles
//|
//| ldmatrix reads eight 16-byte pieces at a time, one of each of eight rows. Rows are a multiple of 128 bytes, all 32 banks, so
//| the same piece of eight rows lies in the same four banks: an eight-way conflict. Therefore piece p of row r is stored where
//| piece p ^ (r % 8) would be. Eight rows then spread a piece over all banks, and a row still fills whole lines.

/// Where piece `piece` of row `row` lies in a swizzled tile, in bytes.
template <int kRowBytes>
__device__ __forceinline__ int swizzled(int row, int piece) {
  return row * kRowBytes + (piece ^ row % 8) * 16;
}

/// From the place of piece 0 or 1 of an aligned group of eight, 2 * step pieces further along the same row.
/// The low bits are exchanged by the swizzle's own operation; every eight pieces are 128 bytes.
__device__ __forceinline__ int walk(int place, int step) { return (place ^ step % 4 * 32) + step / 4 * 128; }

/// Starts copying kRows rows into a swizzled tile; rows from `valid_rows` on become zeros. kPartial = false
/// says that all are valid.
template <bool kPartial, int kRows, int kHeadDim, int kThreads, typename T>
__device__ __forceinline__ void copy_tile(unsigned char* tile,
                                          const T* rows,  // [kRows, kHeadDim]
                                          int valid_rows) {
  constexpr int kPieces = kHeadDim * int(sizeof(T)) / 16, kRowsAtOnce = kThreads / kPieces;
  const int row = threadIdx.x / kPieces, piece = threadIdx.x % kPieces;
  const T* source = rows + row * kHeadDim + piece * 8;
#pragma unroll
  for (int i = 0; i < kRows; i += kRowsAtOnce)
    cp_async_cg(tile + swizzled<kHeadDim* int(sizeof(T))>(row + i, piece), source + i * kHeadDim,
                !kPartial || row + i < valid_rows ? 16 : 0);
}

/// Starts copying K's and V's rows from `first` on into their tiles; only at the end of the keys are rows
/// compared.
template <int kRows, int kHeadDim, int kThreads, typename T>
__device__ __forceinline__ void copy_keys_and_values(unsigned char* k_tile, unsigned char* v_tile,
                                                     const T* k,  // [seqlen, kHeadDim]
                                                     const T* v,  // [seqlen, kHeadDim]
                                                     int first, int seqlen) {
  const int64_t start = int64_t(first) * kHeadDim;
  if (first + kRows <= seqlen) {
    copy_tile<false, kRows, kHeadDim, kThreads>(k_tile, k + start, kRows);
    copy_tile<false, kRows, kHeadDim, kThreads>(v_tile, v + start, kRows);
  } else {
    copy_tile<true, kRows, kHeadDim, kThreads>(k_tile, k + start, seqlen - first);
    copy_tile<true, kRows, kHeadDim, kThreads>(v_tile, v + start, seqlen - first);
  }
}

/// The same for a tile that begins at row `first` of `seqlen` rows; only the last one pays for the
/// comparisons.
template <int kRows, int kHeadDim, int kThreads, typename T>
__device__ __forceinline__ void copy_rows(unsigned char* tile,
                                          const T* tensor,  // [seqlen, kHeadDim]
                                          int first, int seqlen) {
  const T* rows = tensor + int64_t(first) * kHeadDim;
  if (first + kRows <= seqlen)
    copy_tile<false, kRows, kHeadDim, kThreads>(tile, rows, kRows);
  else
    copy_tile<true, kRows, kHeadDim, kThreads>(tile, rows, seqlen - first);
}

//| ## Products
//|
//| One `ldmatrix_x4` brings what two mma.sync need of K: 16 keys by 16 dims. K's rows are keys, which are the columns of the
//| right operand: it is stored as mma.sync wants it. V's rows are keys too, but now keys are summed over: `_trans` turns each
//| 8 x 8 block on its way into the registers, at no cost.

/// Fragments of Q for 16 dims, from a swizzled tile whose row `first_row` is the warp's first.
template <int kHeadDim, int kRowBlocks>
__device__ __forceinline__ void load_rows(uint32_t (&a)[kRowBlocks][4], const unsigned char* tile,
                                          int first_row, int step) {
  constexpr int kRowBytes = kHeadDim * 2;
  const int lane = threadIdx.x % 32,
            place = walk(swizzled<kRowBytes>(first_row + lane % 16, lane / 16), step);
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r) ldmatrix_x4(a[r], tile + place + r * 16 * kRowBytes);
}

/// scores = Q K^T for key blocks kFirst ... kFirst + kCount - 1 of 8 keys each. `queries(a, step)` gives Q's
/// fragments.
template <typename T, int kHeadDim, int kFirst, int kCount, int kRowBlocks, int kKeyBlocks, typename Queries>
__device__ __forceinline__ void multiply_keys(Blocks<kRowBlocks, kKeyBlocks>& scores,
                                              const unsigned char* k_rows,  // swizzled, the warp's first key
                                              Queries queries) {
  constexpr int kRowBytes = kHeadDim * 2;
  const int lane = threadIdx.x % 32;
  const int place = swizzled<kRowBytes>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int n = kFirst; n < kFirst + kCount; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[r][n][i] = 0;
#pragma unroll
  for (int step = 0; step < kHeadDim / 16; ++step) {
    uint32_t a[kRowBlocks][4];
    queries(a, step);
#pragma unroll
    for (int n = kFirst; n < kFirst + kCount; n += 2) {
      uint32_t b[4];  // two key blocks, each 16 dims
      ldmatrix_x4(b, k_rows + walk(place, step) + n * 8 * kRowBytes);
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r) {
        mma_m16n8k16<T>(scores[r][n], a[r], b[0], b[1], scores[r][n]);
        mma_m16n8k16<T>(scores[r][n + 1], a[r], b[2], b[3], scores[r][n + 1]);
      }
    }
  }
}

/// Two key blocks of probabilities, rounded, as the left operand of mma.sync: what comes out of one product
/// is dealt out as the next one takes it.
template <typename T, int kRowBlocks, int kKeyBlocks>
__device__ __forceinline__ void round_probabilities(uint32_t (&p)[kRowBlocks][4],
                                                    const Blocks<kRowBlocks, kKeyBlocks>& scores, int step) {
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&block)[4] = scores[r][2 * step + i / 2];
      p[r][i] = pack<T>(block[i % 2 * 2], block[i % 2 * 2 + 1]);
    }
}

/// out += P V for 16 keys and the warp's dims.
template <typename T, int kHeadDim, int kRowBlocks, int kDimBlocks>
__device__ __forceinline__ void multiply_values(Blocks<kRowBlocks, kDimBlocks>& out,
                                                const uint32_t (&p)[kRowBlocks][4],
                                                const unsigned char* v_rows) {  // swizzled, at 16 keys
  const int lane = threadIdx.x % 32, place = swizzled<kHeadDim * 2>(lane % 16, lane / 16);
#pragma unroll
  for (int n = 0; n < kDimBlocks; n += 2) {
    uint32_t b[4];  // two blocks of 8 dims, each 16 keys
    ldmatrix_x4_trans(b, v_rows + walk(place, n / 2));
#pragma unroll
    for (int r = 0; r < kRowBlocks; ++r) {
      mma_m16n8k16<T>(out[r][n], p[r], b[0], b[1], out[r][n]);
      mma_m16n8k16<T>(out[r][n + 1], p[r], b[2], b[3], out[r][n + 1]);
    }
  }
}

//| ## Softmax

/// Maximum and sum of a lane's rows. The maximum is that of scores before the scale; the sum is the lane's
/// own part.
template <int kRowBlocks>
struct RowState {
  float max[kRowBlocks][2], sum[kRowBlocks][2];
};

/// A state that has seen no key.
template <int kRowBlocks>
__device__ __forceinline__ void clear(RowState<kRowBlocks>& rows) {
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) rows.max[r][half] = -INFINITY, rows.sum[r][half] = 0;
}

/// Scores of keys that a row does not see become -inf. `first_query` is the warp's first row, `first_key` its
/// first key.
template <int kRowBlocks, int kKeyBlocks>
__device__ __forceinline__ void mask(Blocks<kRowBlocks, kKeyBlocks>& scores, const Problem& problem,
                                     int first_query, int first_key) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int visible = problem.visible_keys(first_query + r * 16 + half * 8 + lane / 4) - first_key;
#pragma unroll
      for (int n = 0; n < kKeyBlocks; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (n * 8 + lane % 4 * 2 + i >= visible) scores[r][n][2 * half + i] = -INFINITY;
    }
}

/// The maxima of rows, old and new keys, in all four lanes of a row.
template <int kRowBlocks, int kKeyBlocks>
__device__ __forceinline__ void row_maxima(float (&maxima)[kRowBlocks][2],
                                           const Blocks<kRowBlocks, kKeyBlocks>& scores,
                                           const RowState<kRowBlocks>& rows) {
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = rows.max[r][half];
#pragma unroll
      for (int n = 0; n < kKeyBlocks; ++n)
        top = fmaxf(top, fmaxf(scores[r][n][2 * half], scores[r][n][2 * half + 1]));
      top = fmaxf(top, __shfl_xor_sync(kWarp, top, 1));
      maxima[r][half] = fmaxf(top, __shfl_xor_sync(kWarp, top, 2));
    }
}

/// Makes `maxima` those in use and rescales what was summed under the old ones, unless they rose so little in
/// all the warp's rows that no probability can exceed 2^kSlack: the result is the same, since O and the sum
/// are relative to one maximum. kMasked = false promises that no row is still without a key.
template <bool kMasked, int kRowBlocks, int kDimBlocks>
__device__ __forceinline__ void adopt(const float (&maxima)[kRowBlocks][2],
                                      Blocks<kRowBlocks, kDimBlocks>& out, RowState<kRowBlocks>& rows,
                                      float scale_log2e) {
  bool rises = false;
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half)  // a row without a key: -inf - -inf is NaN, which is not greater
      rises |= (maxima[r][half] - rows.max[r][half]) * scale_log2e > kSlack;
  // BEGIN SOLUTION ch04-rescale
  if (!__any_sync(kWarp, rises)) return;
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float correction = exp2_approx((rows.max[r][half] - maxima[r][half]) * scale_log2e);
      if (kMasked && maxima[r][half] == -INFINITY) correction = 1;
      rows.max[r][half] = maxima[r][half];
      rows.sum[r][half] *= correction;
#pragma unroll
      for (int n = 0; n < kDimBlocks; ++n) {
        out[r][n][2 * half] *= correction;
        out[r][n][2 * half + 1] *= correction;
      }
    }
  //~ if (!__any_sync(kWarp, rises)) return;
  //~ static_cast<void>(out);  // TODO: O and the sums are still relative to the old maxima
  //~ for (int r = 0; r < kRowBlocks; ++r)
  //~   for (int half = 0; half < 2; ++half) rows.max[r][half] = maxima[r][half];
  // END SOLUTION ch04-rescale
}

/// Key blocks kFirst ... kFirst + kCount - 1 of the scores become probabilities, relative to the maximum in
/// use, and are added to `sums`. One multiply-add and one exp2 each.
template <bool kMasked, int kFirst, int kCount, int kRowBlocks, int kKeyBlocks>
__device__ __forceinline__ void exponentiate(Blocks<kRowBlocks, kKeyBlocks>& scores,
                                             const RowState<kRowBlocks>& rows, float (&sums)[kRowBlocks][2],
                                             float scale_log2e) {
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float offset = -rows.max[r][half] * scale_log2e;
      if (kMasked && rows.max[r][half] == -INFINITY)
        offset = 0;  // no key so far: exp2(-inf) is 0 all the same
#pragma unroll
      for (int n = kFirst; n < kFirst + kCount; ++n)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[r][n][i] = exp2_approx(fmaf(scores[r][n][i], scale_log2e, offset));
          sums[r][half] += scores[r][n][i];
        }
    }
}

//| ## The end

/// The sum of a lane's parts of a row, in all four lanes.
__device__ __forceinline__ float row_total(float part) {
  part += __shfl_xor_sync(kWarp, part, 1);
  return part + __shfl_xor_sync(kWarp, part, 2);
}

/// The natural log-sum-exp of a row; -inf if it saw no key.
__device__ __forceinline__ float log_sum_exp(float max, float sum, float scale) {
  return sum > 0 ? max * scale + logf(sum) : -INFINITY;
}

/// Divides a row of O by its sum; 0 if it saw no key.
template <int kDimBlocks>
__device__ __forceinline__ void normalize(float (&out)[kDimBlocks][4], int half, float sum) {
  const float inverse = sum > 0 ? 1 / sum : 0;
#pragma unroll
  for (int n = 0; n < kDimBlocks; ++n) {
    out[n][2 * half] *= inverse;
    out[n][2 * half + 1] *= inverse;
  }
}

/// Stores a warp's O by way of its own rows of a swizzled tile, so that whole lines go out 16 bytes a lane.
/// `first_row` and `first_dim` are the warp's in tile and `o`. Precondition: no other warp uses this part of
/// the tile any more.
template <typename T, int kHeadDim, int kRowBlocks, int kDimBlocks>
__device__ __forceinline__ void store_out(const Blocks<kRowBlocks, kDimBlocks>& out, unsigned char* tile,
                                          int first_row, int first_dim,
                                          T* o,  // [valid_rows, kHeadDim], at the tile's first row
                                          int valid_rows) {
  constexpr int kRowBytes = kHeadDim * 2, kPieces = kDimBlocks;  // 8 dims are 16 bytes
  const int lane = threadIdx.x % 32, first_piece = first_dim / 8;
  __syncwarp();  // the warp's last reads of these rows are done
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < kDimBlocks; ++n) {
        const int place = swizzled<kRowBytes>(first_row + r * 16 + half * 8 + lane / 4, first_piece + n);
        *reinterpret_cast<uint32_t*>(tile + place + lane % 4 * 4) =
            pack<T>(out[r][n][2 * half], out[r][n][2 * half + 1]);
      }
  __syncwarp();  // the rows are complete before other lanes read them
#pragma unroll
  for (int i = 0; i < kRowBlocks * 16 * kPieces; i += 32) {
    const int row = first_row + (i + lane) / kPieces, piece = first_piece + (i + lane) % kPieces;
    if (row < valid_rows)
      reinterpret_cast<uint4*>(o + row * kHeadDim)[piece] =
          *reinterpret_cast<const uint4*>(tile + swizzled<kRowBytes>(row, piece));
  }
}

}  // namespace flashbook::fa2
