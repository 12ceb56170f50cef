/// \file
/// Exercise ch03-loops: keys outside, from the last tile to the first.
#pragma once
#include "chapters/03_flash_attention_1/step1_keys_outside.cuh"

namespace flashbook::fa1 {

// Step 1 with its outer loop reversed, in the order of chapters 4 and 5: the tiles that a mask cuts through
// come first. The loops are given. Write what happens to the rows for one pair of tiles.

/// Processes a tile of queries with a tile of keys, whose K and V are being loaded into `tiles`.
template <typename T, int kHeadDim, int kBlock>
__device__ void meet(Tiles<T, kHeadDim, kBlock>& tiles, const T* q, T* o, float* lse, const State& state,
                     const Problem& problem, int head, int first_query, int first_key) {
  // BEGIN EXERCISE ch03-loops: rows that travel backwards
  // TODO: So far, each tile of queries is processed with the first tile of keys only, which comes last, and
  // its rows are written out as if they were final. Rows with more keys to come have to wait in `state`.
  [[maybe_unused]] const State& unfinished = state;
  if (first_key > 0) return;  // uniform: all threads return together
  load_tile<T, kHeadDim>(tiles.q, q + problem.q_row(head, 0) * kHeadDim, first_query, problem.seqlen_q);
  Rows<kHeadDim, kBlock> rows;
  rows.clear();
  __syncthreads();  // all three tiles are complete before any thread multiplies
  process_tile(tiles, rows, problem, first_query, first_key);
  write_result(rows, o, lse, problem, head, first_query);
  __syncthreads();  // all threads are done with Q, K and V before the next ones overwrite them
  // END EXERCISE ch03-loops
}

/// Attention, one block per head. Grid: (heads); dynamic shared memory: Tiles.
template <typename T, int kHeadDim, int kBlock>
__global__ void __launch_bounds__(kThreads) keys_backwards(const T* q,  // [heads, seqlen_q, kHeadDim]
                                                           const T* k,  // [kv_heads, seqlen_k, kHeadDim]
                                                           const T* v,  // [kv_heads, seqlen_k, kHeadDim]
                                                           T* o,        // [heads, seqlen_q, kHeadDim]
                                                           float* lse,  // [heads, seqlen_q]
                                                           State state, Problem problem) {
  auto& tiles = *dynamic_shared<Tiles<T, kHeadDim, kBlock>>();
  const int head = blockIdx.x;
  for (int first_key = (problem.seqlen_k - 1) / kBlock * kBlock; first_key >= 0; first_key -= kBlock) {
    load_tile<T, kHeadDim>(tiles.k, k + problem.k_row(head, 0) * kHeadDim, first_key, problem.seqlen_k);
    load_tile<T, kHeadDim>(tiles.v, v + problem.k_row(head, 0) * kHeadDim, first_key, problem.seqlen_k);
    for (int first_query = 0; first_query < problem.seqlen_q; first_query += kBlock)
      meet(tiles, q, o, lse, state, problem, head, first_query, first_key);
  }
}

}  // namespace flashbook::fa1
