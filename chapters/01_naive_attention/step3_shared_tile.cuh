//| # Step 3: a tile in shared memory
//|
//| Step 2 asks the L1 for two numbers for every multiply-add, and the L1 looks up one line a clock. The same
//| numbers are asked for again and again: 32 queries by 32 keys are 1024 scores of 32 rows of Q and 32 of K.
//| Here a block of 1024 threads makes such a square. It **loads 32 columns of these 64 rows into shared
//| memory once**, a number a thread and operand, and each of them serves 32 threads from there. The tile lies
//| as the block wants it, so K is turned round on the way in and needs no kernel of its own; and what was
//| converted to float once is not converted 32 times.
//|
//| ![The tiles of chapter 1: what a block loads, and what a thread or a warp makes of
//| it](../../docs/figures/tiles_ch01.svg)
//|
//| A tile does not make reading free. A multiply-add still takes two numbers, and shared memory, too, gives a
//| multiprocessor one wavefront a clock. Only where four neighbours can come by one load is there something
//| to win: the next four columns of a row of `q_tile` lie side by side, and nvcc makes one load of 16 bytes
//| of four rounds of the loop.
//|
//| **Budget.** 2 tiles of 32 x 32 floats, 8.1 KB; 1024 threads with 32 registers at most, so two blocks, 64
//| warps, a multiprocessor.
//|
//| **Predicted** (H200, d = 128, N = 4096, 64 heads): four multiply-adds take 4 wavefronts for K and $w$ for
//| the 16 bytes of Q. By chapter 0's rule a load of 16 bytes is served eight lanes at a time, $w = 4$; but
//| all lanes want the same 16 bytes, and if the hardware sees that, $w = 1$. So
//| $2 \cdot 4.3 \cdot 10^9 \cdot (4 + w)/4$ wavefronts, 48 to 77 ms, and 2.1 for the softmax. Loading the
//| tiles, left out here, takes 4 wavefronts or lines for 32 multiply-adds, 4.8 ms.
#pragma once
#include "chapters/01_naive_attention/problem.cuh"
#include "common/ptx/convert.h"

namespace flashbook::naive {

constexpr int kSquare =
    32;  // queries, keys and columns of a tile: 1024 threads, the most that a block may have

static_assert(kSquare == 32, "a warp is a row of the square: its lanes load 32 neighbours");

//| ## The product of two tiles
//|
//| Thread (tx, ty) of the block makes result (ty, tx) of the square. A warp is one ty, so `a` is one number
//| for all its lanes, and `b` is 32 neighbours. Rows of `b` are a float longer than 32: where a warp stores a
//| *column* of it, its 32 lanes hit 32 different banks.

/// The sum over c of a[ty][c] * b[c][tx].
inline __device__ float multiply_square(const float (&a)[kSquare][kSquare],
                                        const float (&b)[kSquare][kSquare + 1]) {
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kSquare; ++c) sum += a[threadIdx.y][c] * b[c][threadIdx.x];
  return sum;
}

//| ## Scores
//|
//| In the load a warp is a row of the tile, and its lanes are 32 columns: 64 bytes in a row. K's are stored
//| down a column of `k_tile`. Rows beyond the last repeat it: nobody stores their scores.

/// S = scale * Q K^T, one thread a score. Grid: (keys / 32, queries / 32, batch * heads), block: 32 x 32.
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
  // The whole block leaves or nobody: all of its threads must come to the barriers. The last query sees most.
  if (first_key >= problem.visible_keys(min(first_query + kSquare, problem.seqlen_q) - 1)) return;

  //| Both operands are loaded by rows, thread tx the column tx. Only the place in shared memory differs: K's
  //| numbers go down a column, since the product wants neighbouring keys side by side.
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
//| The same with P in the place of Q and V in the place of K. V lies the right way round. The sum runs over
//| the keys, as many as the block's last query sees. Where a row sees fewer, P was never written, and a zero
//| stands in its place.

/// O = P V, one thread an element. Grid: (head_dim / 32, queries / 32, batch * heads), block: 32 x 32.
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

  //| The last query of the block decides how many chunks of keys there are, and each row for itself which of
  //| their P it reads.
  const T* p_row = probabilities + problem.q_row(head, row) * problem.score_stride;
  const T* v_column = v + problem.k_row(head, 0) * head_dim + dim;
  float sum = 0.0f;
  for (int first_key = 0; first_key < visible_to_last; first_key += kSquare) {
    const int key = min(first_key + ty, visible_to_last - 1);  // beyond the last: P is zero there
    p_tile[ty][tx] = first_key + tx < visible ? to_float(p_row[first_key + tx]) : 0.0f;
    v_tile[ty][tx] = to_float(v_column[int64_t(key) * head_dim]);
    __syncthreads();  // both tiles are complete before anyone multiplies
    sum += multiply_square(p_tile, v_tile);
    __syncthreads();  // everyone is done with the tiles before the next ones overwrite them
  }
  if (query < problem.seqlen_q) o[problem.q_row(head, query) * head_dim + dim] = from_float<T>(sum);
}

}  // namespace flashbook::naive
