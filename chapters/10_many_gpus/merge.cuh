//| # Merging parts
//|
//| Attention over some of the keys yields O and a log-sum-exp; attention over other keys yields another pair.
//| Chapter 8 merges all such parts at the end. Here they arrive one after another, so a rank carries a
//| running O and log-sum-exp and merges each part as it arrives:
//|
//|     LSE = log(e^LSE_A + e^LSE_B)        O = e^(LSE_A - LSE) O_A + e^(LSE_B - LSE) O_B
//|
//| The running result stays in float32, so that rounding errors do not grow with the number of ranks.
//|
//| ![Parts of the keys give partial outputs and log-sum-exps, which are
//| merged](../../docs/figures/merge_parts.svg)
#pragma once
#include "chapters/10_many_gpus/tokens.cuh"
#include "common/ptx/convert.h"
#include "common/ptx/math.h"

namespace flashbook::many_gpus {

/// What a rank carries from part to part, and which of its rows a part changes.
struct Carried {
  float* o;    ///< [batch, heads, seqlen_q, head_dim]; null: there is one part, and nothing is carried
  float* lse;  ///< [batch, heads, seqlen_q]
  int first;   ///< earlier rows see none of the part's keys, and do not change
  int from;    ///< from this row on, the part is merged with what is carried
  int until;   ///< earlier rows see no keys of later parts: their result is final
};

//| ## Two weights
//|
//| Both exponents are taken relative to the larger one, so neither overflows; `e^LSE` itself would overflow
//| from LSE = 89 on. A part without keys has the log-sum-exp -inf and the weight 0. If neither has keys, the
//| merged row has none either; computing -inf - (-inf) would give NaN, so the function returns early.

/// The weights of two parts of a row, and their common log-sum-exp.
struct Weights {
  float part_weight, carried_weight, lse;
};

__device__ __forceinline__ Weights weights_of(float part_lse, float carried_lse) {
  const float top = fmaxf(part_lse, carried_lse);
  if (top == -INFINITY) return {0, 0, -INFINITY};
  const float part = exp2_approx((part_lse - top) * kLog2e),
              carried = exp2_approx((carried_lse - top) * kLog2e);
  const float sum = part + carried;  // at least 1
  return {part / sum, carried / sum, top + __log2f(sum) * kLn2};
}

//| ## The merge as a separate kernel
//|
//| Steps 2 and 3 write each part to memory, and this kernel merges it. Each warp takes a row, each lane two
//| columns of every 64.

constexpr int kMergeWarps = 8;  ///< warps per block, one row each

/// Merges a part into what is carried. Grid: (tiles of kMergeWarps rows from carried.first on, heads of all
/// batch entries).
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kMergeWarps * 32)
    merge_part(const float* part_o,    // [batch, heads, seqlen_q, kHeadDim]
               const float* part_lse,  // [batch, heads, seqlen_q]
               Carried carried,
               T* o,        // [batch, heads, seqlen_q, kHeadDim], for final rows
               float* lse,  // [batch, heads, seqlen_q], for final rows
               int seqlen_q) {
  const int row = carried.first + int(blockIdx.x) * kMergeWarps + int(threadIdx.x) / 32;
  if (row >= seqlen_q) return;
  const int lane = threadIdx.x % 32;
  const int64_t place = int64_t(blockIdx.y) * seqlen_q + row;
  const bool is_carried = row >= carried.from, is_final = row < carried.until;
  //| All lanes read the same two numbers and compute the same weights. One lane writes the new log-sum-exp:
  //| to the running result, or, if no later part changes the row, to the final one.
  const Weights weights = weights_of(part_lse[place], is_carried ? carried.lse[place] : -INFINITY);
  __syncwarp();  // all lanes have read the log-sum-exp that lane 0 may overwrite
  if (lane == 0) (is_final ? lse : carried.lse)[place] = weights.lse;
    //| A row that carries nothing yet takes the part's values. Its place in memory was never written, so it
    //| is not read either.
#pragma unroll
  for (int column = 2 * lane; column < kHeadDim; column += 64) {
    const int64_t at = place * kHeadDim + column;
    const float2 part = *reinterpret_cast<const float2*>(part_o + at);
    float2 sum = make_float2(weights.part_weight * part.x, weights.part_weight * part.y);
    if (is_carried) {
      const float2 before = *reinterpret_cast<const float2*>(carried.o + at);
      sum = make_float2(sum.x + weights.carried_weight * before.x, sum.y + weights.carried_weight * before.y);
    }
    if (is_final)
      *reinterpret_cast<uint32_t*>(o + at) = pack<T>(sum.x, sum.y);
    else
      *reinterpret_cast<float2*>(carried.o + at) = sum;
  }
}

//| ## Rows that see nothing
//|
//| Under a causal mask with more queries than keys, the first queries see no key of any rank, so no part ever
//| writes their rows.
/// O = 0 and the log-sum-exp -inf for the first `rows` rows of every head. Grid: as merge_part.
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kMergeWarps * 32) see_nothing(T* o,  // [batch, heads, seqlen_q, kHeadDim]
                                                                float* lse,  // [batch, heads, seqlen_q]
                                                                int rows, int seqlen_q) {
  const int row = int(blockIdx.x) * kMergeWarps + int(threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  const int64_t place = int64_t(blockIdx.y) * seqlen_q + row;
  if (lane == 0) lse[place] = -INFINITY;
  for (int column = 2 * lane; column < kHeadDim; column += 64)
    *reinterpret_cast<uint32_t*>(o + place * kHeadDim + column) = 0;
}

}  // namespace flashbook::many_gpus
