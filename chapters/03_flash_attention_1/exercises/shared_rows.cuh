#pragma once
#include "chapters/03_flash_attention_1/problem.cuh"

namespace flashbook::fa1 {

// All four warps of a block share a row of attention: each takes every fourth key, and at the end, they merge
// their states as in chapter 2. This suits few queries and many keys, as when a model writes word by word.

constexpr int kSharingWarps = 4;

// BEGIN EXERCISE ch03-race: right for one query per block
/// Attention with `kRowsPerBlock` queries per block, one after another. Grid: (queries / kRowsPerBlock, batch
/// * heads); 128 threads.
template <typename T, int kHeadDim, int kRowsPerBlock>
__global__ void shared_rows(const T* q,  // [batch * heads, seqlen_q, kHeadDim]
                            const T* k,  // [batch * kv_heads, seqlen_k, kHeadDim]
                            const T* v,  // [batch * kv_heads, seqlen_k, kHeadDim]
                            T* o,        // [batch * heads, seqlen_q, kHeadDim]
                            float* lse,  // [batch * heads, seqlen_q]
                            Problem problem) {
  constexpr int kDims = kHeadDim / 32;  // per lane: lane, lane + 32, ...
  __shared__ float part_o[kSharingWarps][kHeadDim];
  __shared__ float part_max[kSharingWarps], part_sum[kSharingWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, head = blockIdx.y;

  for (int i = 0; i < kRowsPerBlock; ++i) {
    const int query = blockIdx.x * kRowsPerBlock + i;
    if (query >= problem.seqlen_q) break;  // uniform: all threads leave together
    const T* q_row = q + problem.q_row(head, query) * kHeadDim;
    float own_o[kDims] = {}, row_max = -INFINITY, row_sum = 0.0f;
    for (int key = warp; key < problem.visible_keys(query); key += kSharingWarps) {
      const int64_t row = problem.k_row(head, key) * kHeadDim;
      float score = 0.0f;
      for (int d = 0; d < kDims; ++d)
        score += to_float(q_row[lane + 32 * d]) * to_float(k[row + lane + 32 * d]);
      for (int distance = 16; distance > 0; distance /= 2)
        score += __shfl_xor_sync(0xffffffffu, score, distance);
      score *= problem.scale_log2;
      const Merge merged = merge(row_max, score);
      const float weight = exp2_approx(score - merged.subtracted);
      row_max = merged.row_max;
      row_sum = row_sum * merged.correction + weight;
      for (int d = 0; d < kDims; ++d)
        own_o[d] = own_o[d] * merged.correction + weight * to_float(v[row + lane + 32 * d]);
    }

    for (int d = 0; d < kDims; ++d) part_o[warp][lane + 32 * d] = own_o[d];
    if (lane == 0) part_max[warp] = row_max, part_sum[warp] = row_sum;
    __syncthreads();  // the parts of all warps are stored before any thread merges them

    float all_max = -INFINITY, all_sum = 0.0f;
    for (int w = 0; w < kSharingWarps; ++w) all_max = merge(all_max, part_max[w]).row_max;
    const float subtracted = all_max == -INFINITY ? 0.0f : all_max;
    for (int w = 0; w < kSharingWarps; ++w) all_sum += part_sum[w] * exp2_approx(part_max[w] - subtracted);
    for (int c = threadIdx.x; c < kHeadDim; c += 32 * kSharingWarps) {
      float sum = 0.0f;
      for (int w = 0; w < kSharingWarps; ++w) sum += part_o[w][c] * exp2_approx(part_max[w] - subtracted);
      o[problem.q_row(head, query) * kHeadDim + c] = from_float<T>(sum * inverse_sum(all_sum));
    }
    if (threadIdx.x == 0) lse[problem.q_row(head, query)] = log_sum_exp(all_max, all_sum);
  }
}
// END EXERCISE ch03-race

}  // namespace flashbook::fa1
