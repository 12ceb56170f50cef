//| # Step 4: fewer other operations
//|
//| Non-matmul FLOPs are few next to the products, but tensor cores do ten times as many multiply-adds per
//| clock as all other units together. So scale, base change and maximum become one multiply-add, and $O$ is
//| normalised once at the end. It is rescaled only where a new score exceeds the old maximum by more than 8
//| log2 units, a factor of $2^8$.
//|
//| **Budget** at d = 128: as in step 3.
#pragma once
#include "chapters/04_flash_attention_2/softmax.cuh"

namespace flashbook::fa2 {

//| ## The kernel

/// Computes attention by split queries, with fewer operations per score. Grid: (queries / 64, batch * heads);
/// dynamic shared memory: 5 tiles of kTile x kHeadDim.
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    fewer_operations(const T* q,  // [batch * heads, seqlen_q, kHeadDim]
                     const T* k,  // [batch * kv_heads, seqlen_k, kHeadDim]
                     const T* v,  // [batch * kv_heads, seqlen_k, kHeadDim]
                     T* o,        // [batch * heads, seqlen_q, kHeadDim]
                     float* lse,  // [batch * heads, seqlen_q]
                     Problem problem) {
  constexpr int kRowBytes = kHeadDim * 2, kTileBytes = kTile * kRowBytes;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  const int head = blockIdx.y, first_query = blockIdx.x * kTile, valid_rows = problem.seqlen_q - first_query;
  const int tiles = ceil_div(problem.seqlen_k, kTile);

  unsigned char* q_tile = dynamic_shared<unsigned char>();  // [kTile, kHeadDim], then O
  const auto k_tile = [&](int tile) { return q_tile + kTileBytes * (1 + tile % 2 * 2); };
  const auto v_tile = [&](int tile) { return k_tile(tile) + kTileBytes; };
  q += (problem.q_row(head) + first_query) * kHeadDim;
  o += (problem.q_row(head) + first_query) * kHeadDim;
  k += problem.k_row(head) * kHeadDim;
  v += problem.k_row(head) * kHeadDim;
  const auto load = [&](int tile) {
    const int valid = problem.seqlen_k - tile * kTile;
    copy_tile<true, kTile, kHeadDim, kThreads>(k_tile(tile), k + int64_t(tile) * kTile * kHeadDim, valid);
    copy_tile<true, kTile, kHeadDim, kThreads>(v_tile(tile), v + int64_t(tile) * kTile * kHeadDim, valid);
  };

  copy_tile<true, kTile, kHeadDim, kThreads>(q_tile, q, valid_rows);
  load(0);
  cp_async_commit();
  Blocks<1, kHeadDim / 8> out = {};
  RowState<1> rows;
  clear(rows);
  for (int tile = 0; tile < tiles; ++tile) {
    cp_async_wait<0>();
    __syncthreads();  // the tile has arrived, and no warp still reads the stage that the next overwrites
    if (tile + 1 < tiles) load(tile + 1);
    cp_async_commit();

    Blocks<1, kTile / 8> scores;
    multiply_keys<T, kHeadDim, 0, kTile / 8>(scores, k_tile(tile), [&](uint32_t(&a)[1][4], int step) {
      load_rows<kHeadDim>(a, q_tile, warp_row, step);
    });
    mask(scores, problem, first_query + warp_row, tile * kTile);
    //| Five lines replace step 3's one function: instead of a chain of dependent operations, each score costs
    //| a maximum, a multiply-add, an `exp2` and a sum.
    float maxima[1][2], offsets[1][2];
    row_maxima(maxima, scores, rows);
    rescale<true>(maxima, out, rows, problem.scale_log2e);
    subtract_maxima<true, kHeadDim != 256>(offsets, scores, rows, problem.scale_log2e);
    exponentiate<0, kTile / 8>(scores, offsets, rows.sum, problem.scale_log2e);

#pragma unroll
    for (int step = 0; step < kTile / 16; ++step) {
      uint32_t p[1][4];
      round_probabilities<T>(p, scores, step);
      multiply_values<T, kHeadDim>(out, p, v_tile(tile) + step * 16 * kRowBytes);
    }
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    //| The division by the sum happens here, for the first and only time. The maximum is that of scores
    //| before the scale.
    const int row = warp_row + half * 8 + lane / 4;
    const float sum = row_total(rows.sum[0][half]);
    if (lane % 4 == 0 && row < valid_rows)
      lse[problem.q_row(head) + first_query + row] = log_sum_exp(rows.max[0][half], sum, problem.scale);
    normalize(out[0], half, sum);
  }
  store_out<T, kHeadDim>(out, q_tile, warp_row, 0, o, valid_rows);
}

}  // namespace flashbook::fa2
