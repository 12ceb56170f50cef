//| # Step 4: the merge inside the kernel
//|
//| In steps 2 and 3 every part but the first is written to memory (4 bytes for every element of O), read
//| again, and merged with what is carried, which is read and written: 16 bytes at each of P - 1 hops, most of
//| them in a kernel of its own. Here the attention kernel merges while its result is still in registers. What
//| is left is to read what is carried and to write it back: 8 bytes an element, and no second launch.
//|
//| **Predicted** for 64k tokens, 16 heads of 128 and 2 H200s: a GPU has 32k * 16 rows of 128, 67 M elements,
//| and merges once. It saves 0.54 GB, 0.13 ms at 4 TB/s. Under a causal mask a GPU computes 4 * 128 * 16 *
//| 64k * 64k / 2 / 2 = 8.8 TFLOP, 11.1 ms at 790 TFLOP/s. So this step should bring 1 %. It does not: on two
//| H200s step 3 is faster. See the chapter's box.
//|
//| ![A warpgroup's 64 rows belong to four warps; a row lies in four neighbouring
//| lanes](../../docs/figures/wgmma_fragments.svg)
#pragma once
#include "chapters/10_many_gpus/merge.cuh"
#include "common/hopper/epilogue.h"

namespace flashbook::many_gpus {

//| A thread holds two rows, and of each two columns of every 8: 8 bytes in float32, 32 for the quad, which is
//| a whole sector. So neither shared memory nor an exchange between lanes is needed.
//|
//| The part's O is not divided by its row sums first: the division and the part's weight are one factor.
/// Merges a thread's part of 64 rows with what is carried, and stores it: as carried, or, of final rows, as
/// the result. `query` is the first of the thread's two rows, `head` counts over batch and heads together.
template <typename T, int kFloats, typename AnyProblem>
__device__ __forceinline__ void take_in(const float (&output)[kFloats], const Rows& rows,
                                        const AnyProblem& problem, const Carried& carried,
                                        T* o,        // [batch, heads, seqlen_q, head_dim], of final rows
                                        float* lse,  // [batch, heads, seqlen_q], of final rows
                                        int head, int query) {
  constexpr int kHeadDim = 2 * kFloats;
  Weights weights[2];
  int64_t place[2];
  bool is_stored[2], is_final[2];
  //| First the weights, of both rows. `finish_rows` of chapter 5 does this for a whole result: the quad adds
  //| up its row sums, and the log-sum-exp follows from maximum and sum. New is the log-sum-exp that the row
  //| brings with it.
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = query + 8 * r;
    place[r] = int64_t(head) * problem.seqlen_q + row;
    is_stored[r] = row >= carried.first && row < problem.end_row();
    is_final[r] = row < carried.until;
    const float sum = quad_sum(rows.sum[r]);
    const bool is_carried = is_stored[r] && row >= carried.from;
    weights[r] = weights_of(log_sum_exp(rows.max[r] * problem.scale_log2, sum),
                            is_carried ? carried.lse[place[r]] : -INFINITY);
    weights[r].of_part = sum > 0 ? weights[r].of_part / sum : 0;
  }
  __syncwarp();  // all lanes have read the log-sum-exps that one of the quad overwrites
#pragma unroll
  for (int r = 0; r < 2; ++r)
    if (threadIdx.x % 4 == 0 && is_stored[r]) (is_final[r] ? lse : carried.lse)[place[r]] = weights[r].lse;

      //| Then the elements, two by two. Rows before `first` and beyond the end leave nothing: they may be
      //| final already, or no rows at all. A weight of 0 also stands for a row without anything carried,
      //| whose place was never written.
#pragma unroll
  for (int i = 0; i < kFloats; i += 2) {
    const int r = row_of(i);
    if (!is_stored[r]) continue;
    const int64_t at = place[r] * kHeadDim + i / 4 * 8 + 2 * int(threadIdx.x % 4);
    float2 sum = make_float2(weights[r].of_part * output[i], weights[r].of_part * output[i + 1]);
    if (weights[r].of_carried > 0) {
      const float2 before = *reinterpret_cast<const float2*>(carried.o + at);
      sum = make_float2(sum.x + weights[r].of_carried * before.x, sum.y + weights[r].of_carried * before.y);
    }
    if (is_final[r])
      *reinterpret_cast<uint32_t*>(o + at) = pack<T>(sum.x, sum.y);
    else
      *reinterpret_cast<float2*>(carried.o + at) = sum;
  }
}

}  // namespace flashbook::many_gpus
