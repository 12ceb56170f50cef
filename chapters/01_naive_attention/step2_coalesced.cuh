//| # Step 2: neighbours read neighbours
//|
//| In step 1, a load of K touches 16 cache lines, and looking these lines up takes most of the time. The
//| lanes of a warp read the same column of 16 keys, and each key is a separate row. Assigning queries and
//| keys to threads differently would help little, because Q is stored by rows as well. But we can exchange
//| the *indices of K in memory*: in $K^\top$, stored as `[column][key]`, the same column of 32 neighbouring
//| keys is 64 contiguous bytes.
//|
//| So a small kernel transposes K first. It reads as badly as step 1, but it reads only $N d$ numbers, once,
//| where the products read $N^2 d$. The kernel for the scores differs from step 1 only in the address of K.
//| The product with V does not change, because its lanes already read neighbours. The softmax now has [a warp
//| per row](softmax.cuh).
//|
//| ![The lines that one load of K touches in the kernels of chapter 1](../../docs/figures/sectors_ch01.svg)
//|
//| **Budget.** No shared memory and at most 32 registers, so all 64 warps of a multiprocessor are resident.
//| $K^\top$ takes as many bytes as K, 67 MB at the book's shape.
#pragma once
#include "chapters/01_naive_attention/softmax.cuh"
#include "chapters/01_naive_attention/step1_textbook.cuh"

namespace flashbook::naive {

constexpr int kRowKeys = 32;  // keys per block: a warp has one query and 32 neighbouring keys
constexpr int kRowQueries =
    8;  // queries per block: 8 warps read the same lines of K, which 7 of them find in the L1

//| ## K, transposed
//|
//| Each thread moves one element. One side has to be strided: here, the lanes read from 32 rows and write 64
//| contiguous bytes. At 32 lines per request, reading all of K takes $64 \cdot 4096 \cdot 128 / 32 \cdot 32$
//| look-ups, or 0.15 ms on 132 multiprocessors.

/// k_transposed[c][key] = k[key][c] of every head, one thread per element. Grid: (keys / 32, head_dim / 8,
/// batch * kv_heads), block: 32 x 8.
template <typename T>
__global__ void transpose_keys(const T* k,       // [batch * kv_heads, seqlen_k, head_dim]
                               T* k_transposed,  // [batch * kv_heads, head_dim, seqlen_k]
                               int head_dim, int seqlen_k) {
  const int key = blockIdx.x * kRowKeys + threadIdx.x;
  const int c = blockIdx.y * kRowQueries + threadIdx.y;
  const int64_t head = blockIdx.z;
  if (key >= seqlen_k) return;
  k_transposed[(head * head_dim + c) * seqlen_k + key] = k[(head * seqlen_k + key) * head_dim + c];
}

//| ## Scores
//|
//| In each iteration, the address of Q advances by one element and that of $K^\top$ by one row. All 32 lanes
//| read the same element of Q, one line, and 32 neighbours in $K^\top$: one line, or two if they straddle a
//| boundary.

/// S = scale * Q K^T, one thread per score. Grid: (keys / 32, queries / 8, batch * heads), block: 32 x 8.
template <typename T>
__global__ void coalesced_scores(const T* q,             // [batch * heads, seqlen_q, head_dim]
                                 const T* k_transposed,  // [batch * kv_heads, head_dim, seqlen_k]
                                 float* scores,          // [batch * heads, seqlen_q, score_stride]
                                 int head_dim, Problem problem) {
  const int key = blockIdx.x * kRowKeys + threadIdx.x;
  const int query = blockIdx.y * kRowQueries + threadIdx.y;
  const int head = blockIdx.z;
  if (query >= problem.seqlen_q || key >= problem.visible_keys(query)) return;

  const T* q_row = q + problem.q_row(head, query) * head_dim;
  const T* k_column = k_transposed + int64_t(problem.kv_head(head)) * head_dim * problem.seqlen_k + key;
  float sum = 0.0f;
  for (int c = 0; c < head_dim; ++c)
    sum += to_float(q_row[c]) * to_float(k_column[int64_t(c) * problem.seqlen_k]);
  scores[problem.q_row(head, query) * problem.score_stride + key] = problem.scale * sum;
}

}  // namespace flashbook::naive
