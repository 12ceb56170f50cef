//| # Step 4: a tile of registers
//|
//| Shared memory is the bottleneck of step 3: in the time in which it delivers the two numbers for one
//| multiply-add, CUDA cores could do six. Reading a register is free. So a block computes a tile of 128 by
//| 128, and **each thread keeps an 8 by 8 piece of it in registers**: 16 numbers read from shared memory
//| feed 64 multiply-adds. The loop over chunks, its two barriers and the surrounding kernels are the same as
//| in step 3.
//|
//| ![A tile of 128 by 128 results, and the 64 of them that one thread keeps in
//| registers](../../docs/figures/register_tile.svg)
//|
//| **Budget.** 2 tiles of 32 x 132 floats, 33 KB of shared memory; 64 registers of sums per thread; two
//| blocks per multiprocessor, so that one computes while the other loads.
#pragma once
#include "chapters/01_naive_attention/problem.cuh"
#include "common/ptx/convert.h"

namespace flashbook::naive {

constexpr int kTile = 128;          // queries and keys of a tile: 2 * 128 loads feed 128 * 128 products
constexpr int kChunk = 32;          // columns of the summed dimension per chunk
constexpr int kStride = kTile + 4;  // floats from row to row: aligned to 16 bytes, few bank conflicts
constexpr int kThreads = 256;       // 16 x 16 threads
constexpr int kRowsPerThread = 8;   // 16 * 8 = 128 rows

static_assert(kChunk == 32, "load_transposed gives lane i column i of a chunk");

//| ## Loading a chunk of a tile
//|
//| In shared memory, both operands are stored with the summed dimension *first*: `tile[c][row]`. The
//| innermost loop below runs over c, and for each c, 16 threads read 16 neighbouring floats, without bank
//| conflicts.
//|
//| In device memory, Q, K and P are `[row][c]`, so they are transposed as they are loaded. A warp reads 32
//| consecutive elements of one row, 64 bytes or two whole sectors in bf16, and stores them 132 floats apart.
//| These stores hit only 8 of the 32 banks (132 mod 32 = 4), which is a 4-way conflict. An odd stride would
//| avoid it, but then the 8 neighbouring numbers that a thread reads would no longer be two aligned 16-byte
//| loads, and there are 16 reads for every store.
//|
//| A tile may extend beyond the last row. Threads there load the last row again instead of skipping the load:
//| with a branch around each load, the compiler would wait for one load before issuing the next, although
//| eight should be in flight. The results of surplus rows are never stored. Elements that must not be
//| *summed* are set to zero afterwards by `keep`, which selects between two registers.

/// Loads tile[c][row] = source[row][c] for kTile rows and kChunk columns, with 0 where keep(row, c) is false.
/// Rows beyond `last_row` and columns beyond `last_column` repeat the last.
template <typename T, typename Keep>
__device__ void load_transposed(
    float (&tile)[kChunk][kStride],
    const T* source,  // [rows, stride], at the tile's first row and chunk's first column
    int stride, int last_row, int last_column, Keep keep) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const T* column = source + min(lane, last_column);
#pragma unroll 8  // sixteen would need more registers than the sums leave
  for (int row = warp; row < kTile; row += kThreads / 32) {
    const float value = to_float(column[int64_t(min(row, last_row)) * stride]);
    tile[lane][row] = keep(row, lane) ? value : 0.0f;
  }
}

//| ## The product of two chunks
//|
//| Thread (ty, tx) owns rows 8 ty ... 8 ty + 7 and columns tx, tx + 16, tx + 32, ... of the result. Its rows
//| are adjacent, so it can load them 16 bytes at a time; all 16 threads with the same ty load the same ones.
//| Its columns are 16 apart, so that 16 threads read, and finally write, neighbouring columns.

//| For each of the 32 columns, a thread reads 8 numbers of each operand and does 64 multiply-adds with them.
//| The reads of `a` are two loads of 16 bytes.
/// sums[i][j] += sum over c of a[c][8 ty + i] * b[c][tx + 16 j].
template <int kColumns>
__device__ void multiply_add(float (&sums)[kRowsPerThread][kColumns], const float (&a)[kChunk][kStride],
                             const float (&b)[kChunk][kStride]) {
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#pragma unroll 8  // all 32 would be 2048 multiply-adds in a row: more code than the instruction cache holds
  for (int c = 0; c < kChunk; ++c) {
    float a_column[kRowsPerThread], b_row[kColumns];
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) a_column[i] = a[c][kRowsPerThread * ty + i];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) b_row[j] = b[c][tx + 16 * j];
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) sums[i][j] += a_column[i] * b_row[j];
  }
}

//| ## Scores
//|
//| A block computes a tile of 128 queries by 128 keys, and iterates over head_dim in chunks of 32.

/// S = scale * Q K^T. Grid: (keys / 128, queries / 128, batch * heads).
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kThreads, 2)
    tiled_scores(const T* q,     // [batch * heads, seqlen_q, kHeadDim]
                 const T* k,     // [batch * kv_heads, seqlen_k, kHeadDim]
                 float* scores,  // [batch * heads, seqlen_q, score_stride]
                 Problem problem) {
  static_assert(kHeadDim % kChunk == 0, "head_dim is walked in whole chunks");
  __shared__ __align__(16) float q_tile[kChunk][kStride];  // [c][query of the tile]
  __shared__ __align__(16) float k_tile[kChunk][kStride];  // [c][key of the tile]
  const int first_key = blockIdx.x * kTile, first_query = blockIdx.y * kTile, head = blockIdx.z;
  const int last_query = min(first_query + kTile, problem.seqlen_q) - 1;
  // The last query of a tile sees the most keys. If it sees none of these, the tile is above the diagonal.
  if (first_key >= problem.visible_keys(last_query)) return;

  //| Load two chunks, wait, multiply, wait: each barrier prevents one hazard. The first stops threads from
  //| multiplying before all have loaded, the second from loading the next chunk while others still multiply.
  const T* q_rows = q + problem.q_row(head, first_query) * kHeadDim;
  const T* k_rows = k + problem.k_row(head, first_key) * kHeadDim;
  const int last_row_q = last_query - first_query, last_row_k = problem.seqlen_k - 1 - first_key;
  const auto keep_all = [](int, int) { return true; };
  float sums[kRowsPerThread][kTile / 16] = {};
  for (int c = 0; c < kHeadDim; c += kChunk) {
    load_transposed(q_tile, q_rows + c, kHeadDim, last_row_q, kChunk - 1, keep_all);
    load_transposed(k_tile, k_rows + c, kHeadDim, last_row_k, kChunk - 1, keep_all);
    __syncthreads();  // both chunks are complete before anyone multiplies
    multiply_add(sums, q_tile, k_tile);
    __syncthreads();  // everyone is done with the chunks before the next ones overwrite them
  }

  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  for (int i = 0; i < kRowsPerThread; ++i) {
    const int query = first_query + kRowsPerThread * ty + i;
    if (query >= problem.seqlen_q) break;
    //| Only visible scores are written. `warp_softmax` ignores the rest, so they need not
    //| be cleared.
    const int visible = problem.visible_keys(query);
    float* row = scores + problem.q_row(head, query) * problem.score_stride;
    for (int j = 0; j < kTile / 16; ++j) {
      const int key = first_key + tx + 16 * j;
      if (key < visible) row[key] = problem.scale * sums[i][j];
    }
  }
}

//| ## The product with V
//|
//| This is the same product, with P in place of Q and V in place of K. V is already `[key][dim]`, and the sum
//| now runs over the keys: as many as the last query of the tile sees. Earlier queries see fewer. Where a
//| query does not see a key, P was never written. There, `keep` substitutes a zero, which adds nothing,
//| whatever the value of V.

/// O = P V. Grid: (head_dim / columns of a tile, queries / 128, batch * heads).
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kThreads, 2)
    tiled_output(const T* probabilities,  // [batch * heads, seqlen_q, score_stride]
                 const T* v,              // [batch * kv_heads, seqlen_k, kHeadDim]
                 T* o,                    // [batch * heads, seqlen_q, kHeadDim]
                 Problem problem) {
  constexpr int kColumns = kHeadDim < kTile ? kHeadDim : kTile;  // head_dim 256 takes two blocks side by side
  __shared__ __align__(16) float p_tile[kChunk][kStride];        // [key of the chunk][query of the tile]
  __shared__ __align__(16) float v_tile[kChunk][kStride];        // [key of the chunk][dim of the tile]
  const int first_dim = blockIdx.x * kColumns, first_query = blockIdx.y * kTile, head = blockIdx.z;
  const int last_query = min(first_query + kTile, problem.seqlen_q) - 1;
  const int visible = problem.visible_keys(last_query);

  //| The sum runs over keys. Tiles beyond the diagonal are never visited, because the loop ends with the last
  //| visible key.
  const T* p_rows = probabilities + problem.q_row(head, first_query) * problem.score_stride;
  float sums[kRowsPerThread][kColumns / 16] = {};
  for (int first_key = 0; first_key < visible; first_key += kChunk) {
    load_transposed(p_tile, p_rows + first_key, problem.score_stride, last_query - first_query,
                    problem.seqlen_k - 1 - first_key, [&](int row, int key) {
                      return first_key + key < problem.visible_keys(first_query + row);
                    });
#pragma unroll 4
    for (int i = threadIdx.x; i < kChunk * kColumns; i += kThreads) {
      const int key = min(first_key + i / kColumns, visible - 1), dim = i % kColumns;
      v_tile[i / kColumns][dim] = to_float(v[problem.k_row(head, key) * kHeadDim + first_dim + dim]);
    }
    __syncthreads();  // both chunks are complete before anyone multiplies
    multiply_add(sums, p_tile, v_tile);
    __syncthreads();  // everyone is done with the chunks before the next ones overwrite them
  }

  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  for (int i = 0; i < kRowsPerThread; ++i) {
    const int query = first_query + kRowsPerThread * ty + i;
    if (query >= problem.seqlen_q) break;
    T* row = o + problem.q_row(head, query) * kHeadDim + first_dim;
    for (int j = 0; j < kColumns / 16; ++j) row[tx + 16 * j] = from_float<T>(sums[i][j]);
  }
}

}  // namespace flashbook::naive
