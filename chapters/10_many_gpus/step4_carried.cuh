//| # Step 4: the merge inside the kernel
//|
//| In steps 2 and 3 every part except the first is written to memory, read again, and merged with the running
//| result, which is read and written too: 16 bytes per element of O at each of P - 1 hops, most of them in a
//| separate kernel. Here the attention kernel merges while its result is still in registers. That leaves 8
//| bytes per element, to read the running result and to write it back, and saves a launch. It should be
//| faster, but on two H200s it is not: see the chapter's box.
//|
//| ![A warpgroup's 64 rows belong to four warps; a row is spread over four neighbouring
//| lanes](../../docs/figures/wgmma_fragments.svg)
#pragma once
#include "chapters/10_many_gpus/merge.cuh"
#include "common/hopper/epilogue.h"

namespace flashbook::many_gpus {

//| A thread holds two rows, with two columns of every 8: 8 bytes in float32, or 32 for the quad, a whole
//| sector. So the store needs neither shared memory nor an exchange between lanes.
//|
//| The part's O is not divided by its row sums first: one factor combines the division with the part's
//| weight.
/// Merges a thread's part of 64 rows with what is carried and stores it, final rows as the result. `query` is
/// the first of the thread's two rows; `head` indexes batch and heads together.
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
  //| First the weights of both rows. As in `finish_rows` of chapter 5, the quad combines its row sums, and
  //| the log-sum-exp follows from maximum and sum. Only the log-sum-exp that the row already carries is new.
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
    weights[r].part_weight = sum > 0 ? weights[r].part_weight / sum : 0;
  }
  __syncwarp();  // all lanes have read the log-sum-exps that one lane overwrites
#pragma unroll
  for (int r = 0; r < 2; ++r)
    if (threadIdx.x % 4 == 0 && is_stored[r]) (is_final[r] ? lse : carried.lse)[place[r]] = weights[r].lse;

      //| Then come the elements, two at a time. Rows before `first` may already be final, and rows past the
      //| end do not exist, so neither is stored. A weight of 0 also marks a row that carries nothing yet,
      //| whose place was never written.
#pragma unroll
  for (int i = 0; i < kFloats; i += 2) {
    const int r = row_of(i);
    if (!is_stored[r]) continue;
    const int64_t at = place[r] * kHeadDim + i / 4 * 8 + 2 * int(threadIdx.x % 4);
    float2 sum = make_float2(weights[r].part_weight * output[i], weights[r].part_weight * output[i + 1]);
    if (weights[r].carried_weight > 0) {
      const float2 before = *reinterpret_cast<const float2*>(carried.o + at);
      sum = make_float2(sum.x + weights[r].carried_weight * before.x,
                        sum.y + weights[r].carried_weight * before.y);
    }
    if (is_final[r])
      *reinterpret_cast<uint32_t*>(o + at) = pack<T>(sum.x, sum.y);
    else
      *reinterpret_cast<float2*>(carried.o + at) = sum;
  }
}

}  // namespace flashbook::many_gpus
