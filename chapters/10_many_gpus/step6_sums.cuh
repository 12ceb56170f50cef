//| # Before, between and after the hops
//|
//| There are three small kernels. The first computes what every round needs to know about a query, the second
//| adds a rank's part of dK and dV to the sum of earlier ranks, and the third rounds.
//|
//| ![The five products of a tile and where their operands lie](../../docs/figures/backward_products.svg)
#pragma once
#include "chapters/10_many_gpus/step6_blocks.cuh"
#include "common/hopper/gradient_prepare.h"

namespace flashbook::many_gpus {

//| ## D and the log-sum-exp
//|
//| A query's log-sum-exp and $D$ are those over *all* keys: the forward pass has merged the log-sum-exp, and
//| O, from which $D$ is computed. So probabilities are right at every hop, no matter which keys a rank holds,
//| and the parts of a gradient simply add up without weights.
/// Computes D and the log-sum-exp for every row of the workspace, and zeros for dQ. kHeadDim / 8 lanes share
/// a row. Grid: rows of the workspace / rows of a block.
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kPrepareThreads)
    prepare(const T* o,        // [heads, seqlen_q, kHeadDim]
            const T* d_o,      // [heads, seqlen_q, kHeadDim]
            const float* lse,  // [heads, seqlen_q]
            GradientWorkspace workspace, int64_t rows, int seqlen_q, int padded_q) {
  const int64_t at = int64_t(blockIdx.x) * kPrepareRows<kHeadDim> + threadIdx.x / (kHeadDim / 8);
  const int64_t row = at % padded_q, number = at / padded_q * seqlen_q + row;
  prepare_row<T, kHeadDim, true>(
      workspace, at, at < rows, at < rows && row < seqlen_q, [&] { return o + number * kHeadDim; },
      [&] { return d_o + number * kHeadDim; }, [&] { return lse[number]; }, [] { return 0.0f; });
}

//| ## One part and another
//|
//| A rank's part of dK and dV is in float32, and so is the sum that arrives with the keys: rounding it to 16
//| bits at every rank would add an error each time.
constexpr int kSumThreads = 256;

/// sums += part, four floats per thread. Grid: fours / kSumThreads.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) add_part(float4* sums, const float4* part, int64_t fours) {
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= fours) return;
  const float4 a = sums[at], b = part[at];
  sums[at] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

//| If a rank's queries see none of the keys that it holds, its part is zeros.
/// sums = 0, four floats per thread. Grid: fours / kSumThreads.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) no_part(float4* sums, int64_t fours) {
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at < fours) sums[at] = make_float4(0, 0, 0, 0);
}

//| ## At the end
//|
//| When the sums have returned home, a rank adds its own part and rounds. The parts of dK lack one factor,
//| the scale of the scores, which is applied here. dQ never travelled; its sums are rounded as in chapter 7.
/// to = (own + home) in 16 bits, the first `scaled` fours times `scale`: dK, and dV after it.
template <typename T, int kThreads>
__global__ void __launch_bounds__(kThreads)
    round_sums(const float4* own, const float4* home, uint2* to, int64_t fours, int64_t scaled, float scale) {
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= fours) return;
  const float4 a = own[at], b = home[at];
  const float factor = at < scaled ? scale : 1.0f;
  to[at] = make_uint2(pack<T>(factor * (a.x + b.x), factor * (a.y + b.y)),
                      pack<T>(factor * (a.z + b.z), factor * (a.w + b.w)));
}

//| The sums of dQ are stored in register order, which the workspace is free to choose; dQ itself is
//| row-major.
/// Rounds the sums to dQ. Each of a block's kKeyConsumers warpgroups processes a part of a tile of queries.
/// Grid: tiles of queries of all heads.
template <typename T, int kHeadDim, int kQueries>
__global__ void __launch_bounds__(kKeyConsumerThreads)
    round_queries(const float* sums,  // [heads, padded_q, head_dim], in the order of registers
                  T* dq,              // [heads, seqlen_q, head_dim]
                  int seqlen_q, int padded_q, float scale) {
  const int tiles = (seqlen_q + kQueries - 1) / kQueries;
  const int64_t head = int(blockIdx.x) / tiles;
  const int query = int(blockIdx.x) % tiles * kQueries;
  const int first =
      query + (DqPart<kHeadDim, kQueries>::kByRows ? int(threadIdx.x / kWarpgroup) * kRowsPerWarpgroup : 0);
  round_dq<T, kHeadDim, kQueries>(sums + (head * padded_q + query) * kHeadDim, scale,
                                  dq + (head * seqlen_q + first) * kHeadDim, kHeadDim, row_of_thread(),
                                  seqlen_q - first);
}

}  // namespace flashbook::many_gpus
