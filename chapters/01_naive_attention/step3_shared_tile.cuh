//| # Step 3: a tile in shared memory
//|
//| Step 2 reads two numbers from the L1 for every multiply-add, and it reads the same numbers again and
//| again: the 1024 scores of 32 queries and 32 keys depend on only 32 rows of Q and 32 rows of K. Here, a
//| block of 1024 threads computes such a square. It **loads 32 columns of these 64 rows into shared memory
//| once**, one number per thread and operand, and 32 threads use each number from there. The block stores the
//| tile in the layout it needs: K is transposed on its way in, without a separate kernel. And each number is
//| converted to float once, not 32 times.
//|
//| ![The tiles of chapter 1: what a block loads, and what a thread or a warp makes of
//| it](../../docs/figures/tiles_ch01.svg)
//|
//| A tile does not make reading free. A multiply-add still reads two numbers, and shared memory
//| delivers one wavefront per clock and multiprocessor. Only wider loads help: the next four
//| columns of a row of `q_tile` are adjacent, and nvcc merges the loads of four iterations into one
//| of 16 bytes.
//|
//| **Budget.** 2 tiles of 32 x 32 floats, 8.1 KB. 1024 threads with at most 32 registers each, so a
//| multiprocessor holds two blocks, 64 warps.
#pragma once
#include "chapters/01_naive_attention/problem.cuh"
#include "common/ptx/convert.h"

namespace flashbook::naive {

constexpr int kSquare =
    32;  // queries, keys and columns of a tile: 1024 threads, the maximum that a block may have

static_assert(kSquare == 32, "a warp is a row of the square: its lanes load 32 neighbours");

//| ## The product of two tiles
//|
//| Thread (tx, ty) of the block computes result (ty, tx) of the square. All lanes of a warp have the same ty,
//| so `a` is the same number for all of them, and `b` is 32 neighbours. The rows of `b` are one float longer
//| than 32, so that when a warp stores a *column*, its 32 lanes hit 32 different banks.

/// Returns the sum over c of a[ty][c] * b[c][tx].
inline __device__ float multiply_square(const float (&a)[kSquare][kSquare],
                                        const float (&b)[kSquare][kSquare + 1]) {
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kSquare; ++c) sum += a[threadIdx.y][c] * b[c][threadIdx.x];
  return sum;
}

//| ## Scores
//|
//| When loading, each warp reads one row of the tile, and its lanes read 32 columns: 64 contiguous bytes. K
//| is stored down a column of `k_tile`, because the product needs neighbouring keys side by side. Threads
//| beyond the last row load that row again; their scores are never stored.

/// S = scale * Q K^T, one thread per score. Grid: (keys / 32, queries / 32, batch * heads), block: 32 x 32.
template <typename T>
__global__ void __launch_bounds__(kSquare* kSquare, 2)
    shared_scores(const T* q,     // [batch * heads, seqlen_q, head_dim]
                  const T* k,     // [batch * kv_heads, seqlen_k, head_dim]
                  float* scores,  // [batch * heads, seqlen_q, score_stride]
                  int head_dim, Problem problem) {
  __shared__ __align__(16) float q_tile[kSquare][kSquare];  // [query of the tile][c]
  __shared__ float k_tile[kSquare][kSquare + 1];            // [c][key of the tile]
  const int tx = threadIdx.x, ty = threadIdx.y, head = blockIdx.z;
  const int first_key = blockIdx.x * kSquare, first_query = blockIdx.y * kSquare;
  // All threads must reach the barriers, so the block returns as a whole. The last query sees the most keys.
  if (first_key >= problem.visible_keys(min(first_query + kSquare, problem.seqlen_q) - 1)) return;

  const T* q_row = q + problem.q_row(head, min(first_query + ty, problem.seqlen_q - 1)) * head_dim;
  const T* k_row = k + problem.k_row(head, min(first_key + ty, problem.seqlen_k - 1)) * head_dim;
  float sum = 0.0f;
  for (int c = 0; c < head_dim; c += kSquare) {
    q_tile[ty][tx] = to_float(q_row[c + tx]);
    k_tile[tx][ty] = to_float(k_row[c + tx]);
    __syncthreads();  // both tiles are complete before anyone multiplies
    sum += multiply_square(q_tile, k_tile);
    __syncthreads();  // everyone is done with the tiles before the next ones overwrite them
  }

  const int query = first_query + ty, key = first_key + tx;
  if (query < problem.seqlen_q && key < problem.visible_keys(query))
    scores[problem.q_row(head, query) * problem.score_stride + key] = problem.scale * sum;
}

//| ## The product with V
//|
//| The same product, with P and V in place of Q and K. V needs no transposing. The sum runs over the keys
//| that the block's last query sees. Where a row sees fewer, P was never written, and zero is used instead.

/// O = P V, one thread per element. Grid: (head_dim / 32, queries / 32, batch * heads), block: 32 x 32.
template <typename T>
__global__ void __launch_bounds__(kSquare* kSquare, 2)
    shared_output(const T* probabilities,  // [batch * heads, seqlen_q, score_stride]
                  const T* v,              // [batch * kv_heads, seqlen_k, head_dim]
                  T* o,                    // [batch * heads, seqlen_q, head_dim]
                  int head_dim, Problem problem) {
  __shared__ __align__(16) float p_tile[kSquare][kSquare];  // [query of the tile][key]
  __shared__ float v_tile[kSquare][kSquare + 1];            // [key][dim of the tile]
  const int tx = threadIdx.x, ty = threadIdx.y, head = blockIdx.z;
  const int dim = blockIdx.x * kSquare + tx, query = blockIdx.y * kSquare + ty;
  const int row = min(query, problem.seqlen_q - 1), visible = problem.visible_keys(row);
  const int visible_to_last = problem.visible_keys(min(query - ty + kSquare, problem.seqlen_q) - 1);

  //| The last query of the block determines how many chunks of keys there are. Each row reads only the part
  //| of its P that it needs.
  const T* p_row = probabilities + problem.q_row(head, row) * problem.score_stride;
  const T* v_column = v + problem.k_row(head, 0) * head_dim + dim;
  float sum = 0.0f;
  for (int first_key = 0; first_key < visible_to_last; first_key += kSquare) {
    const int key = min(first_key + ty, visible_to_last - 1);  // beyond the last key, where P is zero
    p_tile[ty][tx] = first_key + tx < visible ? to_float(p_row[first_key + tx]) : 0.0f;
    v_tile[ty][tx] = to_float(v_column[int64_t(key) * head_dim]);
    __syncthreads();  // both tiles are complete before anyone multiplies
    sum += multiply_square(p_tile, v_tile);
    __syncthreads();  // everyone is done with the tiles before the next ones overwrite them
  }
  if (query < problem.seqlen_q) o[problem.q_row(head, query) * head_dim + dim] = from_float<T>(sum);
}

}  // namespace flashbook::naive
