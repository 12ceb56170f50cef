//| # Merging results over parts of the keys
//|
//| This is chapter 2's rule, with the log-sum-exp as the weight. If attention over keys A gave O_A and LSE_A,
//| and over keys B it gave O_B and LSE_B, then over all of them
//|
//|     LSE = log(e^LSE_A + e^LSE_B)        O = e^(LSE_A - LSE) O_A + e^(LSE_B - LSE) O_B
//|
//| and so on, for any number of parts in any order (FlashInfer, arXiv 2501.01005, calls it the merge
//| operator). Partial results stay in float32, because rounding each part to 16 bits would add an error each
//| time. (Step 7's parts are so large that [they are rounded](step7_latent_merge.cuh).)
//|
//| ![Four blocks write a partial O and log-sum-exp; the last to arrive at the counter merges
//| them](../../docs/figures/merge_parts.svg)
#pragma once
#include <type_traits>

#include "chapters/08_decoding/problem.cuh"
#include "common/ptx/convert.h"
#include "common/ptx/math.h"

namespace flashbook::decoding {
/// Results over parts of the keys, in the workspace, one row of a part per place. If there is only one
/// part, it is the result: it is stored in the outputs, and `o` is null. A log-sum-exp is natural, as in the
/// outputs.
struct Partials {
  float* o;    ///< [places, head_dim]
  float* lse;  ///< [places], -inf for a part without keys, whose o is not written
};

//| ## The merge
//| Each warp merges one row. First its lanes read all log-sum-exps, then every lane sums its own columns.
//| A part without keys has the log-sum-exp -inf, and its O was never written. It is skipped, since 0 times
//| stale memory may be NaN. If all parts are empty, so is the row: O = 0, and its log-sum-exp is -inf.
//|
//| Parts are added in a fixed order, no matter which warp merges or when, so every launch gives the same
//| bits.

/// A row as a warp holds it: each lane has some columns, up to four of them contiguous.
template <int kHeadDim>
struct WarpRow {
  static constexpr int kColumns = kHeadDim / 32;            ///< columns per lane
  static constexpr int kRun = kColumns < 4 ? kColumns : 4;  ///< adjacent columns
  using Run = std::conditional_t<kRun == 4, float4, float2>;
  alignas(sizeof(Run)) float value[kColumns];
  float lse;

  /// Returns the column of value[c]. Neighbouring lanes have neighbouring runs, so a warp reads 256 or 512
  /// bytes at a time.
  __device__ __forceinline__ static int column(int c) {
    return (c / kRun * 32 + int(threadIdx.x % 32)) * kRun + c % kRun;
  }

  //| A warp reads a row of $O$ in one or two loads of contiguous bytes.
  /// Reads the lane's columns of the row at `from`.
  __device__ __forceinline__ void load(const float* from) {
#pragma unroll
    for (int c = 0; c < kColumns; c += kRun)
      *reinterpret_cast<Run*>(value + c) = *reinterpret_cast<const Run*>(from + column(c));
  }
};

/// Merges parts 0 ... parts - 1 of a row; part i is at `place(i)`. One warp.
template <int kHeadDim, typename Place>
__device__ __forceinline__ WarpRow<kHeadDim> merge_row(const Partials& partials, int parts, Place place) {
  using Row = WarpRow<kHeadDim>;
  const int lane = threadIdx.x % 32;

  //| 16 parts of O are requested before their weights are known, since the log-sum-exps take as long to
  //| arrive. Empty parts are loaded too, and ignored.
  constexpr int kAtOnce = 16;
  Row row = {}, part[kAtOnce];
  float max = -INFINITY, weights = 0;
  for (int first = 0; first < parts; first += kAtOnce) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) part[i].load(partials.o + place(min(first + i, parts - 1)) * kHeadDim);
    if (first == 0) {
#pragma unroll 1
      for (int i = lane; i < parts; i += 32) max = fmaxf(max, partials.lse[place(i)]);
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2)
        max = fmaxf(max, __shfl_xor_sync(kWholeWarp, max, distance));
    }

    //| Each lane computes one part's weight and broadcasts it.
    const int own = first + lane % kAtOnce;
    const float lse = own < parts ? partials.lse[place(own)] : -INFINITY;
    const float own_weight = lse == -INFINITY ? 0 : exp2_approx((lse - max) / kLn2);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float weight = __shfl_sync(kWholeWarp, own_weight, i);
      if (weight == 0) continue;
      weights += weight;
#pragma unroll
      for (int c = 0; c < Row::kColumns; ++c) row.value[c] += weight * part[i].value[c];
    }
  }

  //| The weights are relative to the largest log-sum-exp, so their sum is at least 1, unless no part has a
  //| key.
  const float inverse = weights > 0 ? 1 / weights : 0;
#pragma unroll
  for (int c = 0; c < Row::kColumns; ++c) row.value[c] *= inverse;
  row.lse = weights > 0 ? max + __log2f(weights) * kLn2 : -INFINITY;
  return row;
}

//| ## Storing a merged row
//|
//| A merged row goes to $O$ in its type or, if merging continues at the next level of a tree, back to the
//| workspace as a part.
/// Stores a row of the result, `row` of the pack; only the first `columns` if it is padded. One warp.
template <typename T, bool kPadded = false, int kHeadDim>
__device__ __forceinline__ void store_row(const WarpRow<kHeadDim>& result, const Problem& problem,
                                          const Pack& of, int row,
                                          T* o,        // [batch, heads, seqlen_q, kHeadDim], strided
                                          float* lse,  // [batch, heads, seqlen_q]
                                          int columns = kHeadDim) {
  T* to = o + problem.offset(problem.o_strides, of, row);
#pragma unroll
  for (int c = 0; c < result.kColumns; c += 2)
    if (!kPadded || result.column(c) < columns)
      *reinterpret_cast<uint32_t*>(to + result.column(c)) = pack<T>(result.value[c], result.value[c + 1]);
  if (threadIdx.x % 32 == 0) lse[problem.number(of, row)] = result.lse;
}
//| A part keeps its row in float32, each lane's columns contiguous.
/// Stores a row of a part.
template <int kHeadDim>
__device__ __forceinline__ void store_row(const WarpRow<kHeadDim>& result, const Partials& partials,
                                          int64_t place) {
  using Row = WarpRow<kHeadDim>;
  float* to = partials.o + place * kHeadDim;
#pragma unroll
  for (int c = 0; c < Row::kColumns; c += Row::kRun)
    *reinterpret_cast<typename Row::Run*>(to + Row::column(c)) =
        *reinterpret_cast<const typename Row::Run*>(result.value + c);
  if (threadIdx.x % 32 == 0) partials.lse[place] = result.lse;
}

//| ## Many parts of a row
//|
//| One warp would need several rounds of loads for a hundred parts, each with the latency of device memory.
//| Instead, each of a block's four warps merges a quarter of the parts, and the first warp merges the four
//| results. With four warps such a block fits on a multiprocessor alongside one of step 10's, and can be
//| ready before that one ends.

constexpr int kManyWarps = 4;

/// Merges a row as merge_row does, and hands it to `store` in the first warp. A block of kManyWarps warps.
template <int kHeadDim, typename Place, typename Store>
__device__ __forceinline__ void merge_by_block(const Partials& partials, int parts, Place place,
                                               Store store) {
  __shared__ float4 warp_o[kManyWarps][kHeadDim / 4];
  __shared__ float warp_lse[kManyWarps];
  const int warp = threadIdx.x / 32, first = parts * warp / kManyWarps;
  const Partials warp_parts = {&warp_o[0][0].x, warp_lse};
  store_row<kHeadDim>(merge_row<kHeadDim>(partials, parts * (warp + 1) / kManyWarps - first,
                                          [&](int part) { return place(first + part); }),
                      warp_parts, warp);
  __syncthreads();  // all warps' rows have been written
  if (warp == 0) store(merge_row<kHeadDim>(warp_parts, kManyWarps, [](int part) { return part; }));
}

}  // namespace flashbook::decoding
