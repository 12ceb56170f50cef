//| # Merging results over parts of the keys
//|
//| Chapter 2's rule, with the log-sum-exp as the weight. Attention over keys A gave O_A and LSE_A, over keys B the same;
//| over all of them
//|
//|     LSE = log(e^LSE_A + e^LSE_B)        O = e^(LSE_A - LSE) O_A + e^(LSE_B - LSE) O_B
//|
//| for any number of parts and in any order (FlashInfer, arXiv 2501.01005, calls it the merge operator). Partial results
//| stay in float32: rounded to 16 bits, each part would add an error of its own.
#pragma once
#include "chapters/08_decoding/problem.cuh"
#include "common/ptx/convert.h"
#include "common/ptx/math.h"

namespace flashbook::decoding {

/// Results over parts of the keys, in the workspace. `o` is null if there is one part, which is the result.
struct Partials {
  float* o;      ///< [parts, rows of O, head_dim]
  float* lse;    ///< [parts, rows of O], -inf of a part without keys, whose o is not written
  int64_t rows;  ///< of O
};

//| A block may have two rows a thread of a finished tile, either of the result or of a part. Both go straight from the
//| registers: there are few of them.
/// Stores a thread's parts of its two rows, `row` and `row` + 8 of the pack.
template <typename T, int kHeadDim>
__device__ __forceinline__ void store_rows(const float (&output)[kHeadDim / 2], const float (&lse)[2],
                                           const Problem& problem, const Pack& of, int row,
                                           T* o,           // [batch, heads, seqlen_q, kHeadDim], strided
                                           float* all_lse  // [batch, heads, seqlen_q]
) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= problem.rows()) continue;
    auto* to = reinterpret_cast<uint32_t*>(o + problem.offset(problem.o_strides, of, row + 8 * r)) + lane;
#pragma unroll
    for (int i = 0; i < kHeadDim / 8; ++i)
      to[4 * i] = pack<T>(output[4 * i + 2 * r], output[4 * i + 2 * r + 1]);
    if (lane == 0) all_lse[problem.number(of, row + 8 * r)] = lse[r];
  }
}

/// The same of part `part`, in float32.
template <int kHeadDim>
__device__ __forceinline__ void store_partial(const float (&output)[kHeadDim / 2], const float (&lse)[2],
                                              const Problem& problem, const Pack& of, int row,
                                              const Partials& partials, int part) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= problem.rows()) continue;
    const int64_t number = part * partials.rows + problem.number(of, row + 8 * r);
    auto* to = reinterpret_cast<float2*>(partials.o + number * kHeadDim) + lane;
    if (lane == 0) partials.lse[number] = lse[r];
    if (lse[r] == -INFINITY) continue;  // nobody reads O of a part without keys
#pragma unroll
    for (int i = 0; i < kHeadDim / 8; ++i)
      to[4 * i] = make_float2(output[4 * i + 2 * r], output[4 * i + 2 * r + 1]);
  }
}

//| ## The merge
//|
//| A warp has a row. First its lanes look at all log-sum-exps, then every lane adds up its own columns. A part without keys
//| has the log-sum-exp -inf, and nobody wrote its O: it is left out, for 0 times what lies there may be NaN. If all parts
//| are empty, so is the row: O = 0, and -inf.

/// A row's columns of one lane.
template <int kHeadDim>
struct LaneColumns {
  static constexpr int kCount = kHeadDim / 32;  ///< side by side
  float value[kCount];
};

/// Merges a row's parts 0 ... parts - 1 and stores the result. One warp.
template <typename T, int kHeadDim>
__device__ __forceinline__ void merge_row(const Problem& problem, const Partials& partials, int parts,
                                          const Pack& of, int row, T* o, float* all_lse) {
  constexpr float kLn2 = 0.6931471805599453f;
  using Columns = LaneColumns<kHeadDim>;
  const int lane = threadIdx.x % 32;
  const int64_t number = problem.number(of, row);

  float max = -INFINITY;
  for (int part = lane; part < parts; part += 32)
    max = fmaxf(max, partials.lse[part * partials.rows + number]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    max = fmaxf(max, __shfl_xor_sync(kWholeWarp, max, distance));

  Columns sum = {};
  float weights = 0;
  for (int part = 0; part < parts; ++part) {
    const float lse = partials.lse[part * partials.rows + number];
    if (lse == -INFINITY) continue;  // so max is finite below
    const float weight = exp2_approx((lse - max) / kLn2);
    const auto* from = reinterpret_cast<const Columns*>(
        partials.o + (part * partials.rows + number) * kHeadDim + lane * Columns::kCount);
    weights += weight;
#pragma unroll
    for (int c = 0; c < Columns::kCount; ++c) sum.value[c] += weight * from->value[c];
  }

  const float inverse = weights > 0 ? 1 / weights : 0;
  auto* to =
      reinterpret_cast<uint32_t*>(o + problem.offset(problem.o_strides, of, row) + lane * Columns::kCount);
#pragma unroll
  for (int c = 0; c < Columns::kCount; c += 2)
    to[c / 2] = pack<T>(sum.value[c] * inverse, sum.value[c + 1] * inverse);
  if (lane == 0) all_lse[number] = weights > 0 ? max + __log2f(weights) * kLn2 : -INFINITY;
}

constexpr int kMergeWarps = 4;  ///< rows that a block of the merging kernel has

/// Step 3's second kernel. Grid: (rows of a pack / kMergeWarps, packs of all sequences).
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kMergeWarps * 32)
    merge(Partials partials, int parts,
          T* o,        // [batch, heads, seqlen_q, kHeadDim], strided
          float* lse,  // [batch, heads, seqlen_q]
          Problem problem) {
  const int row = int(blockIdx.x) * kMergeWarps + int(threadIdx.x) / 32;
  if (row < problem.rows())
    merge_row<T, kHeadDim>(problem, partials, parts, problem.pack_of(blockIdx.y), row, o, lse);
}

}  // namespace flashbook::decoding
