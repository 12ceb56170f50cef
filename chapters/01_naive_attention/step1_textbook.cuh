//| # Step 1: one thread per score
//|
//| Attention is three formulas, and here they are three kernels:
//|
//| $$S = \text{scale} \cdot Q K^\top, \qquad P = \text{softmax}(S), \qquad O = P V.$$
//|
//| Each kernel evaluates the formula for *one number*, and the grid has one thread per number. The threads
//| share nothing: each reads whatever it needs from device memory. This is how a textbook writes it, and it
//| is correct. It is also slow, for three reasons, which steps 2 to 4 remove:
//|
//| 1. In `textbook_scores`, the threads of a warp read 16 different rows of K. One load of 2 bytes per thread
//|    touches 16 *sectors* of 32 bytes, each in its own cache *line*. The next iterations use the rest of
//|    these sectors, but every load has to look up 16 lines.
//| 2. `textbook_softmax` gives a whole row to one thread. Again, each thread of a warp reads a different row,
//|    and it reads that row three times.
//| 3. Every score reads its $2d$ inputs again: no number is used twice once it is loaded.
//|
//| ![The sectors that one load of a warp touches: 16 in step 1, 2 in step
//| 2](../../docs/figures/sectors_ch01.svg)
#pragma once
#include "chapters/01_naive_attention/problem.cuh"
#include "common/ptx/convert.h"

namespace flashbook::naive {

constexpr int kTextbookSide = 16;  // a block is 16 x 16 threads, a square like its scores

//| ## Scores
//|
//| A thread finds its score from its position in the grid: `x` runs over keys, `y` over queries, `z` over
//| heads. Matrices rarely end where a block does, so threads beyond the edge return at once. So do those
//| whose key is hidden from the query: a masked score is never computed, written or read.

/// S = scale * Q K^T, one thread per score. Grid: (keys / 16, queries / 16, batch * heads).
template <typename T>
__global__ void textbook_scores(const T* q,     // [batch * heads, seqlen_q, head_dim]
                                const T* k,     // [batch * kv_heads, seqlen_k, head_dim]
                                float* scores,  // [batch * heads, seqlen_q, score_stride]
                                int head_dim, Problem problem) {
  const int key = blockIdx.x * kTextbookSide + threadIdx.x;
  const int query = blockIdx.y * kTextbookSide + threadIdx.y;
  const int head = blockIdx.z;
  if (query >= problem.seqlen_q || key >= problem.visible_keys(query)) return;

  const T* q_row = q + problem.q_row(head, query) * head_dim;
  const T* k_row = k + problem.k_row(head, key) * head_dim;
  float sum = 0.0f;  // float32 for every T: a sum of 128 products in f16 would lose low digits
  for (int c = 0; c < head_dim; ++c) sum += to_float(q_row[c]) * to_float(k_row[c]);
  scores[problem.q_row(head, query) * problem.score_stride + key] = problem.scale * sum;
}

//| ## Softmax
//|
//| One thread goes through one row three times: for the maximum, for the sum of the exponentials, and for the
//| quotients. It subtracts the maximum before `exp`, since $e^{89}$ overflows in float32. The result is the
//| same, because the factor $e^{-m}$ cancels.
//|
//| The log-sum-exp, $m + \log \sum_j e^{s_j - m}$, is the one number that tells how large the sum was. A
//| backward pass needs it, and so does merging two halves of a row (chapter 2).

/// P = softmax(S) and the log-sum-exp, one thread per row. Grid: (rows / 256).
template <typename T>
__global__ void textbook_softmax(const float* scores,  // [batch * heads, seqlen_q, score_stride]
                                 T* probabilities,     // [batch * heads, seqlen_q, score_stride]
                                 float* lse,           // [batch * heads, seqlen_q]
                                 int64_t rows, Problem problem) {
  const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const int visible = problem.visible_keys(int(row % problem.seqlen_q));
  const float* s = scores + row * problem.score_stride;
  T* p = probabilities + row * problem.score_stride;

  float row_max = -INFINITY;
  for (int j = 0; j < visible; ++j) row_max = fmaxf(row_max, s[j]);
  float row_sum = 0.0f;
  for (int j = 0; j < visible; ++j) row_sum += __expf(s[j] - row_max);
  for (int j = 0; j < visible; ++j) p[j] = from_float<T>(__expf(s[j] - row_max) / row_sum);

  // A row that sees no key has an empty sum: its log-sum-exp is log(0). `row_max` is -inf already.
  lse[row] = visible > 0 ? row_max + logf(row_sum) : -INFINITY;
}

//| ## The product with V
//|
//| Each thread computes one element of O, a row of P times a column of V. In this kernel, neighbouring
//| threads do read neighbouring elements (of V), and all threads of a row read the same element of P.

/// O = P V, one thread per element. Grid: (seqlen_q, 1, batch * heads), block: head_dim threads.
template <typename T>
__global__ void textbook_output(const T* probabilities,  // [batch * heads, seqlen_q, score_stride]
                                const T* v,              // [batch * kv_heads, seqlen_k, head_dim]
                                T* o,                    // [batch * heads, seqlen_q, head_dim]
                                Problem problem) {
  const int dim = threadIdx.x, head_dim = blockDim.x;
  const int query = blockIdx.x;
  const int head = blockIdx.z;
  const T* p = probabilities + problem.q_row(head, query) * problem.score_stride;
  const T* v_column = v + problem.k_row(head, 0) * head_dim + dim;

  float sum = 0.0f;  // stays 0 for a row that sees no key, as it should
  const int visible = problem.visible_keys(query);
  for (int j = 0; j < visible; ++j) sum += to_float(p[j]) * to_float(v_column[int64_t(j) * head_dim]);
  o[problem.q_row(head, query) * head_dim + dim] = from_float<T>(sum);
}

}  // namespace flashbook::naive
