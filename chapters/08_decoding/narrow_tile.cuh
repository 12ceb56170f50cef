//| # A warp's products with 16 keys
//|
//| A warp of the ring multiplies 16 rows of queries by a *chunk* of 16 keys at a time, with `mma.sync` as in
//| chapter 4. The difference is how keys and values get into registers.
//|
//| **A tile has the same layout in shared memory as in device memory**, since the copy does not rearrange
//| bytes. Its rows are 256 bytes apart (d = 128), so eight of them start in the same banks, and `ldmatrix`,
//| which reads 16 bytes from each of eight rows, would take eight wavefronts. Instead, each lane loads 16
//| bytes. Eight lanes are served at a time, covering two keys (of K) or four (of V). Each lane needs two such
//| loads; lanes of neighbouring keys issue them in opposite order, so they hit different banks.
//|
//| Such a load gives a lane eight consecutive columns of a row, whereas `mma.sync` expects two here and two
//| there. That does not matter. A sum over columns may be taken in any order, as long as Q's columns are
//| distributed the same way, and columns of O may be in any order until they are stored.
//|
//| ![A lane loads 16 bytes of a key, eight columns: four are its part of one product, four of the
//| next](../../docs/figures/decode_lanes.svg)
#pragma once
#include "chapters/08_decoding/ring_shared.cuh"
#include "chapters/08_decoding/softmax.cuh"
#include "common/ptx/mma.h"

namespace flashbook::decoding {

/// A warp's 16 rows of Q, in the layout of mma.sync operands.
template <typename Traits>
using Queries = uint32_t[Traits::kHeadDim / 16][4];

//| Step 8's `Scales` add what elements of one byte need: [step 8](step8_e4m3_cache.cuh) overloads these
//| functions. Elements of 16 bits have no scales.
struct NoScales {
  __device__ NoScales(const Cache&, const Problem&, const Segment&, int /*first_key*/) {}
  __device__ void begin(int /*tile*/) {}
  template <int kFloats>
  __device__ void finish(float (&)[kFloats]) const {}
};
template <typename Traits>
class CacheScales;
template <typename Traits>
using Scales = std::conditional_t<Traits::kElementBytes == 1, CacheScales<Traits>, NoScales>;

//| ## Queries
//|
//| Q goes straight from memory into registers, once per segment, while the first tile of keys is in flight.
//| Two products need 32 columns, of which lane $t$ of a quad holds columns $8t$ to $8t+7$: the first four for
//| the first product, the last four for the second.
template <typename T, typename Traits, typename PlanType>
__device__ __forceinline__ void load_queries(Queries<Traits>& fragments, NoScales&,
                                             const T* q,  // [batch, heads, seqlen_q, kHeadDim], strided
                                             const Problem& problem, const PlanType& plan, int pack,
                                             int first_row) {
  const Pack of = plan.rows_at(problem, pack);
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + lane / 4 + 8 * r;
    const bool exists = row < plan.rows_of(problem, pack);
    const T* from = q + (exists ? problem.offset(problem.q_strides, of, row) : 0) + lane % 4 * 8;
    const int row_columns = plan.template columns<Traits::kHeadDim>();
#pragma unroll
    for (int step = 0; step < Traits::kHeadDim / 16; step += 2) {
      const bool is_there = exists && (!PlanType::kPadded || lane % 4 * 8 + step * 16 < row_columns);
      const uint4 columns =
          is_there ? *reinterpret_cast<const uint4*>(from + step * 16) : make_uint4(0, 0, 0, 0);
      fragments[step][r] = columns.x, fragments[step][r + 2] = columns.y;
      fragments[step + 1][r] = columns.z, fragments[step + 1][r + 2] = columns.w;
    }
  }
}

//| ## Scores
//|
//| A row of K is contiguous along the summed dimension, as `mma.sync` expects its second operand. A lane has
//| one key of the first eight and one of the other eight. Nothing was loaded past the last key, so a lane
//| whose key is missing reads the last key again, and its scores become -inf afterwards.

/// Returns which column of a chunk score i of a thread belongs to.
__device__ __forceinline__ int column_of(int i) { return i / 4 * 8 + 2 * int(threadIdx.x % 4) + i % 2; }

/// Returns the 16 bytes at `from` + `apart`; for a padded row, which ends after `left` bytes, zeros.
template <bool kPadded>
__device__ __forceinline__ uint4 piece_of_row(const unsigned char* from, int apart, int left) {
  return kPadded && apart >= left ? make_uint4(0, 0, 0, 0) : *reinterpret_cast<const uint4*>(from + apart);
}

/// Loads the 16 bytes at `from` and those `apart` bytes further on, the latter first if `reverse`.
template <bool kPadded>
__device__ __forceinline__ void load_two(uint4 (&to)[2], const unsigned char* from, int apart, bool reverse,
                                         int left) {
  const uint4 first = piece_of_row<kPadded>(from, reverse ? apart : 0, left);
  const uint4 second = piece_of_row<kPadded>(from, reverse ? 0 : apart, left);
  to[0] = reverse ? second : first;
  to[1] = reverse ? first : second;
}

//| Lanes with two neighbouring keys are served together, 64 bytes of each key. Odd keys begin with the second
//| half of 128 bytes, so the two do not share a bank.
/// scores = Q K^T for the 16 keys of a chunk, of which those below `keys` of the tile exist.
template <typename T, typename Traits, typename PlanType>
__device__ __forceinline__ void multiply_keys(float* scores, const Queries<Traits>& q, const NoScales&,
                                              const Stage<Traits>& tile, int chunk, int keys,
                                              const PlanType& plan) {
  const int lane = threadIdx.x % 32, first_key = chunk * kRowsPerMma + lane / 4;
  const int row_bytes = plan.template columns<Traits::kHeadDim>() * 2, own = lane % 4 * 16;
  const unsigned char* row[2];
  float sums[2][4] = {};  // columns 0-7, columns 8-15
#pragma unroll
  for (int n = 0; n < 2; ++n) row[n] = tile.byte + min(first_key + 8 * n, keys - 1) * row_bytes + own;
    //| A lane loads 16 of every 64 columns of either key, for four products.
#pragma unroll
  for (int step = 0; step < Traits::kHeadDim / 16; step += 4)
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      uint4 k[2];
      load_two<PlanType::kPadded>(k, row[n] + step * 32, 64, lane / 4 % 2 != 0, row_bytes - own - step * 32);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        mma_m16n8k16<T>(sums[n], q[step + 2 * i], k[i].x, k[i].y, sums[n]);
        mma_m16n8k16<T>(sums[n], q[step + 2 * i + 1], k[i].z, k[i].w, sums[n]);
      }
    }
#pragma unroll
  for (int i = 0; i < 8; ++i) scores[i] = sums[i / 4][i % 4];
}

//| ## Values
//|
//| Here the summed dimension is the keys, and a register of the second operand holds the same column of two
//| keys. A lane loads columns of the four keys whose scores it holds, and rearranges the 16-bit halves with
//| `byte_permute`. Lane group $g$ (of eight) holds 8 of every 64 columns, starting at $8g$; at $d = 128$ it
//| holds 16 of 128, in two loads.
//|
//| The four lanes of a quad have four keys, all in the same banks. If there are two loads, odd lanes issue
//| the second one first, which takes two wavefronts instead of four. Values past the last key may be NaN, and
//| 0 times NaN is NaN, so no lane loads them.

/// A lane group's contiguous columns of V, and a thread's contiguous columns of a row of sums.
template <int kHeadDim>
constexpr int kSpan = kHeadDim == 128 ? 128 : 64;
template <int kHeadDim>
constexpr int kGroupColumns = kSpan<kHeadDim> / 8;
template <int kHeadDim>
constexpr int kThreadColumns = kSpan<kHeadDim> / 4;

/// output += P V for the 16 keys of a chunk, of which those below `keys` of the tile exist.
template <typename T, typename Traits, typename PlanType>
__device__ __forceinline__ void multiply_values(float (&output)[Traits::kHeadDim / 2], const float* p,
                                                NoScales&, const Stage<Traits>& tile, int chunk, int keys,
                                                const PlanType& plan) {
  constexpr int kColumns = kGroupColumns<Traits::kHeadDim>;
  constexpr uint32_t kLowHalves = 0x5410, kHighHalves = 0x7632;
  const int lane = threadIdx.x % 32, row_bytes = plan.template columns<Traits::kHeadDim>() * 2;
  const uint32_t a[4] = {pack<T>(p[0], p[1]), pack<T>(p[2], p[3]), pack<T>(p[4], p[5]), pack<T>(p[6], p[7])};
#pragma unroll
  for (int columns = 0; columns < Traits::kHeadDim; columns += kSpan<Traits::kHeadDim>) {
    //| A lane's four keys are rows 2t, 2t + 1, 2t + 8 and 2t + 9 of the chunk.
    uint32_t v[4][kColumns / 2] = {};  // [key of the lane][pair of columns]
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = chunk * kRowsPerMma + column_of(i / 2 * 4 + i % 2);
      const int at = (columns + lane / 4 * kColumns) * 2;
      const unsigned char* from = tile.byte + key * row_bytes + at;
      if (key >= keys) continue;
      uint4 loaded[2];
      if constexpr (kColumns == 16)
        load_two<PlanType::kPadded>(loaded, from, 16, lane % 2 != 0, row_bytes - at);
      else
        loaded[0] = piece_of_row<PlanType::kPadded>(from, 0, row_bytes - at);
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        v[i][4 * j] = loaded[j].x, v[i][4 * j + 1] = loaded[j].y;
        v[i][4 * j + 2] = loaded[j].z, v[i][4 * j + 3] = loaded[j].w;
      }
    }
    //| One product computes one column of each lane group: eight lane groups make eight columns of O.
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      const auto both = [&](int i) {
        const uint32_t first = v[i][column / 2], second = v[i + 1][column / 2];
        return column % 2 == 0 ? byte_permute<kLowHalves>(first, second)
                               : byte_permute<kHighHalves>(first, second);
      };
      float(&sums)[4] = *reinterpret_cast<float(*)[4]>(&output[columns / 2 + 4 * column]);
      mma_m16n8k16<T>(sums, a, both(0), both(2), sums);
    }
  }
}

//| So a thread's sums of a row are contiguous columns: those of lane groups $2t$ and $2t + 1$.

/// Returns the place in a thread's output of its column `column`, of contiguous ones from `columns` on; `r`
/// is the thread's row, 0 or 1.
template <int kHeadDim>
__device__ __forceinline__ constexpr int place_in_output(int columns, int column, int r) {
  constexpr int kColumns = kGroupColumns<kHeadDim>;
  return columns / 2 + column % kColumns * 4 + 2 * r + column / kColumns;
}

}  // namespace flashbook::decoding
