//| # Step 3: two stages
//|
//| In step 2 a block either copies or computes. Here `cp.async` copies tile $j + 1$ while tile $j$ is used,
//| bypassing the registers. The cost is a second stage of K and V.
//|
//| **Budget** at d = 128: Q 16 KB, K and V 32 KB per stage.
#pragma once
#include "chapters/04_flash_attention_2/softmax.cuh"

namespace flashbook::fa2 {

//| ## The kernel
//|
//| Shared memory holds Q, then two stages, each K with V behind it. Tile $j$ goes to stage $j \bmod 2$.
//| `load` starts copying K and V of a tile.

/// Computes attention by split queries, with the next tile in flight. Grid: (queries / 64, batch * heads);
/// dynamic shared memory: 5 tiles of kTile x kHeadDim.
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kThreads) two_stages(const T* q,  // [batch * heads, seqlen_q, kHeadDim]
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

  //| Q and the first tile are one group of copies, so one wait covers both.
  copy_tile<true, kTile, kHeadDim, kThreads>(q_tile, q, valid_rows);
  load(0);
  cp_async_commit();
  Blocks<1, kHeadDim / 8> out = {};
  RowState<1> rows;
  clear(rows);
  for (int tile = 0; tile < tiles; ++tile) {
    //| **One barrier per tile.** Each thread waits for its own copies, then the barrier makes all threads'
    //| copies visible. The same barrier ensures that every warp has finished tile $j - 1$, so tile $j + 1$
    //| may now be copied into that stage. The order matters: a copy issued *before* the barrier would
    //| overwrite rows that a slower warp still reads.
    //|
    //| ![A thread's copies, the groups it makes of them, and what a wait
    //| promises](../../docs/figures/cp_async_groups.svg)
    cp_async_wait<0>();
    __syncthreads();  // the tile has arrived, and no warp still reads the stage that the next overwrites
    if (tile + 1 < tiles) load(tile + 1);
    cp_async_commit();

    Blocks<1, kTile / 8> scores;
    multiply_keys<T, kHeadDim, 0, kTile / 8>(scores, k_tile(tile), [&](uint32_t(&a)[1][4], int step) {
      load_rows<kHeadDim>(a, q_tile, warp_row, step);
    });
    mask(scores, problem, first_query + warp_row, tile * kTile);
    normalized_softmax(scores, out, rows, problem.scale);

#pragma unroll
    for (int step = 0; step < kTile / 16; ++step) {
      uint32_t p[1][4];
      round_probabilities<T>(p, scores, step);
      multiply_values<T, kHeadDim>(out, p, v_tile(tile) + step * 16 * kRowBytes);
    }
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp_row + half * 8 + lane / 4;
    if (lane % 4 == 0 && row < valid_rows)
      lse[problem.q_row(head) + first_query + row] = log_sum_exp(rows.max[0][half], rows.sum[0][half], 1.0f);
  }
  store_out<T, kHeadDim>(out, q_tile, warp_row, 0, o, valid_rows);
}

}  // namespace flashbook::fa2
