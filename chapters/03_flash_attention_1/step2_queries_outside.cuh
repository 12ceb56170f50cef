//| # Step 2: queries outside, keys inside
//|
//| In step 1, the unfinished $O$ travels: at d = 128, every pair of tiles moves 64 KB of it and 16 KB of Q,
//| whereas a tile of K and V together is 32 KB. So it is better to keep the unfinished rows and let K and V
//| pass by: the loops change places.
//|
//|     for each tile of queries:         load Q; O, m, l start empty, in registers
//|       for each tile of keys:          load K and V
//|         scores, softmax, O += weights * V
//|       store O and the log-sum-exp, once
//|
//| ![What stays in a block and what passes by, in step 1 and in step 2](../../docs/figures/loop_orders.svg)
//|
//| Tiles of queries no longer depend on each other, so each of them can be a block: $N/B$ blocks per head
//| instead of one. FlashAttention-2 switched to this order a year later.
//|
//| **Budget.** As in step 1, and no device memory beyond inputs and outputs.
#pragma once
#include "chapters/03_flash_attention_1/tile.cuh"

namespace flashbook::fa1 {

/// Attention, one block per tile of queries. Grid: (queries / kBlock, batch * heads); dynamic shared memory:
/// Tiles.
template <typename T, int kHeadDim, int kBlock>
__global__ void __launch_bounds__(kThreads, 1)
    queries_outside(const T* q,  // [batch * heads, seqlen_q, kHeadDim]
                    const T* k,  // [batch * kv_heads, seqlen_k, kHeadDim]
                    const T* v,  // [batch * kv_heads, seqlen_k, kHeadDim]
                    T* o,        // [batch * heads, seqlen_q, kHeadDim]
                    float* lse,  // [batch * heads, seqlen_q]
                    Problem problem) {
  //| The block loads its tile of queries once, and its rows start empty. They stay in registers
  //| until the end.
  //|
  //| The loop below begins with a barrier, and every thread passes it before any thread reads Q.
  auto& tiles = *dynamic_shared<Tiles<T, kHeadDim, kBlock>>();
  const int first_query = blockIdx.x * kBlock, head = blockIdx.y;
  load_tile<T, kHeadDim>(tiles.q, q + problem.q_row(head, 0) * kHeadDim, first_query, problem.seqlen_q);
  Rows<kHeadDim, kBlock> rows;
  rows.clear();
  // Tiles of keys above the diagonal are never loaded.
  const int visible = problem.visible_keys_of_tile(first_query, kBlock);
  for (int first_key = 0; first_key < visible; first_key += kBlock) {
    load_tile<T, kHeadDim>(tiles.k, k + problem.k_row(head, 0) * kHeadDim, first_key, problem.seqlen_k);
    load_tile<T, kHeadDim>(tiles.v, v + problem.k_row(head, 0) * kHeadDim, first_key, problem.seqlen_k);
    __syncthreads();  // K and V, and at first Q, are complete before anyone multiplies
    process_tile(tiles, rows, problem, first_query, first_key);
    __syncthreads();  // everyone is done with K and V before the next ones overwrite them
  }
  //| A block whose queries see no key never enters the loop. It writes the zeros and $-\infty$ that `clear`
  //| left in its rows.
  write_result(rows, o, lse, problem, head, first_query);
}

}  // namespace flashbook::fa1
