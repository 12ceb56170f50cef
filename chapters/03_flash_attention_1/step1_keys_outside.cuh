//| # Step 1: keys outside, queries inside
//|
//| Chapter 1 ended with a diagnosis: $S$ and $P$ travel through device memory, 12 bytes for every pair of a
//| query and a key, and on tensor cores that takes longer than all the arithmetic. Chapter 2 had the remedy.
//| This is the first kernel to use it, with the loops in the order of the FlashAttention paper (Algorithm 1):
//|
//|     for each tile of keys:            load K and V
//|       for each tile of queries:       load Q, and O, m, l as they are so far
//|         scores, softmax, O += weights * V
//|         store O, m, l
//|
//| ![What stays in a block and what passes by, in step 1 and in step 2](../../docs/figures/loop_orders.svg)
//|
//| No score leaves the chip, and K and V are read once. But each tile of queries meets the tiles of keys one
//| after another, with all the other tiles of queries in between. So its unfinished $O$ and its two numbers
//| per row have to be stored and loaded again: they travel through device memory once per tile of keys.
//|
//| **Budget.** Shared memory as in [tile.cuh](tile.cuh): at d = 128, tiles of 64 take 67 KB. Device memory
//| beyond inputs and outputs: $O$ in float32 and two numbers, $4(d + 2)$ bytes per row. In 16 bits, the
//| unfinished $O$ would be rounded once per tile of keys.
#pragma once
#include "chapters/03_flash_attention_1/tile.cuh"

namespace flashbook::fa1 {

/// The unfinished rows in device memory.
struct State {
  float* o;        ///< [batch * heads, seqlen_q, head_dim], not divided by row_sum
  float* row_max;  ///< [batch * heads, seqlen_q]
  float* row_sum;  ///< [batch * heads, seqlen_q]
};

//| `load_state` and `store_state` are the price of this order. Each thread moves its own part of $O$, four
//| floats at a time. No barrier is needed, because a thread only loads what it has stored itself.
/// Loads the state of a tile of queries that the previous tile of keys stored.
template <int kHeadDim, int kBlock>
__device__ void load_state(Rows<kHeadDim, kBlock>& rows, const State& state, const Problem& problem, int head,
                           int first_query) {
  using Own = Rows<kHeadDim, kBlock>;
  for (int i = 0; i < Own::kCount; ++i) {
    // Beyond the last query, fetch the last one again: it is never stored.
    const int64_t row = problem.q_row(head, min(first_query + tile_row(i), problem.seqlen_q - 1));
    rows.row_max[i] = state.row_max[row];
    rows.row_sum[i] = state.row_sum[row];
    for (int g = 0; g < Own::kGroups; ++g) {
      const auto four = load_vector<float, 4>(state.o + row * kHeadDim + tile_dim(g));
      for (int c = 0; c < 4; ++c) rows.o[i][g][c] = four.element[c];
    }
  }
}

/// Stores a tile of queries for the next tile of keys.
template <int kHeadDim, int kBlock>
__device__ void store_state(const Rows<kHeadDim, kBlock>& rows, const State& state, const Problem& problem,
                            int head, int first_query) {
  using Own = Rows<kHeadDim, kBlock>;
  for (int i = 0; i < Own::kCount; ++i) {
    const int query = first_query + tile_row(i);
    if (query >= problem.seqlen_q) break;
    const int64_t row = problem.q_row(head, query);
    for (int g = 0; g < Own::kGroups; ++g) {
      Vector<float, 4> four;
      for (int c = 0; c < 4; ++c) four.element[c] = rows.o[i][g][c];
      store_vector(state.o + row * kHeadDim + tile_dim(g), four);
    }
    if (threadIdx.x % kSide != 0) continue;  // all 16 threads of a row hold the same two numbers
    state.row_max[row] = rows.row_max[i];
    state.row_sum[row] = rows.row_sum[i];
  }
}

//| ## The kernel
//|
//| With the first tile of keys, there is nothing to load, and the last tile that the queries see finishes
//| them. Under a causal mask, a tile of keys skips the tiles of queries that see none of it. The first tile
//| of keys skips none, because rows that see no key at all have an output, too, which is zero.

/// Attention, one block per head. Grid: (batch * heads); dynamic shared memory: Tiles.
template <typename T, int kHeadDim, int kBlock>
// Told to expect one block per multiprocessor, ptxas does not save registers for more. With tiles of 32 in
// f16 it would spill on sm_80.
__global__ void __launch_bounds__(kThreads, kBlock == 32 ? 1 : 0)
    keys_outside(const T* q,  // [batch * heads, seqlen_q, kHeadDim]
                 const T* k,  // [batch * kv_heads, seqlen_k, kHeadDim]
                 const T* v,  // [batch * kv_heads, seqlen_k, kHeadDim]
                 T* o,        // [batch * heads, seqlen_q, kHeadDim]
                 float* lse,  // [batch * heads, seqlen_q]
                 State state, Problem problem) {
  auto& tiles = *dynamic_shared<Tiles<T, kHeadDim, kBlock>>();
  const int head = blockIdx.x;
  for (int first_key = 0; first_key < problem.seqlen_k; first_key += kBlock) {
    load_tile<T, kHeadDim>(tiles.k, k + problem.k_row(head, 0) * kHeadDim, first_key, problem.seqlen_k);
    load_tile<T, kHeadDim>(tiles.v, v + problem.k_row(head, 0) * kHeadDim, first_key, problem.seqlen_k);
    for (int first_query = 0; first_query < problem.seqlen_q; first_query += kBlock) {
      const int visible = problem.visible_keys_of_tile(first_query, kBlock);
      if (first_key > 0 && first_key >= visible) continue;  // all above the diagonal; for every thread alike
      load_tile<T, kHeadDim>(tiles.q, q + problem.q_row(head, 0) * kHeadDim, first_query, problem.seqlen_q);
      //| Two barriers per pair of tiles: the tiles must be complete before anyone multiplies, and all
      //| threads must be done with them before the next ones are loaded.
      Rows<kHeadDim, kBlock> rows;
      if (first_key == 0)
        rows.clear();
      else
        load_state(rows, state, problem, head, first_query);
      __syncthreads();  // all three tiles are complete before anyone multiplies
      process_tile(tiles, rows, problem, first_query, first_key);
      if (first_key + kBlock < visible)
        store_state(rows, state, problem, head, first_query);
      else
        write_result(rows, o, lse, problem, head, first_query);
      __syncthreads();  // everyone is done with Q, K and V before the next ones overwrite them
    }
  }
}

}  // namespace flashbook::fa1
