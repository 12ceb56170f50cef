/// \file
/// Exercise ch01-scores: scores with ALiBi, one thread per score.
#pragma once
#include "chapters/01_naive_attention/problem.cuh"
#include "common/ptx/convert.h"

namespace flashbook::naive {

// ALiBi (arXiv 2108.12409) lowers a score by the distance between query and key: it subtracts
// `slopes[head]` times the number of tokens between them. Query i is token i + seqlen_k - seqlen_q of the
// keys, since the last query belongs to the last key.

constexpr int kAlibiSide = 16;  // a block is 16 x 16 threads

/// S = scale * Q K^T - slope * distance, one thread per score; nothing where the mask hides the key. Grid:
/// (keys / 16, queries / 16, heads).
template <typename T>
__global__ void alibi_scores(const T* q,           // [heads, seqlen_q, head_dim]
                             const T* k,           // [kv_heads, seqlen_k, head_dim]
                             const float* slopes,  // [heads]
                             float* scores,        // [heads, seqlen_q, score_stride]
                             int head_dim, Problem problem) {
  const int key = blockIdx.x * kAlibiSide + threadIdx.x;
  const int query = blockIdx.y * kAlibiSide + threadIdx.y;
  const int head = blockIdx.z;
  // BEGIN EXERCISE ch01-scores: one score per thread, with ALiBi
  // TODO: This handles the edges of the matrix and finds its rows. The mask, the sum, the scale and the
  // distance are missing.
  if (query >= problem.seqlen_q || key >= problem.seqlen_k) return;

  const T* q_row = q + problem.q_row(head, query) * head_dim;
  const T* k_row = k + problem.k_row(head, key) * head_dim;
  float sum = to_float(q_row[0]) * to_float(k_row[0]);
  scores[problem.q_row(head, query) * problem.score_stride + key] = sum - slopes[head];
  // END EXERCISE ch01-scores
}

}  // namespace flashbook::naive
