/// \file
/// Exercise ch01-softmax: the softmax of a row with a sink.
#pragma once
#include "chapters/01_naive_attention/problem.cuh"
#include "common/ptx/convert.h"

namespace flashbook::naive {

// Even a query for which no key is relevant has to assign all its probability. So some models let each head
// learn a *sink*: one more score in every row, without a key and without a value. The sink is part of the
// sum, and so of the log-sum-exp, but no probability is stored for it.

/// P = exp(S) / (exp(sink) + sum of exp(S)) and the log-sum-exp of scores and sink, one thread per row. Grid:
/// (rows / 256).
template <typename T>
__global__ void sink_softmax(const float* scores,  // [heads, seqlen_q, score_stride]
                             const float* sinks,   // [heads], on the scale of the scores
                             T* probabilities,     // [heads, seqlen_q, score_stride]
                             float* lse,           // [heads, seqlen_q]
                             int64_t rows, Problem problem) {
  const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const int visible = problem.visible_keys(int(row % problem.seqlen_q));
  const float sink = sinks[row / problem.seqlen_q];
  const float* s = scores + row * problem.score_stride;
  T* p = probabilities + row * problem.score_stride;
  // BEGIN EXERCISE ch01-softmax: the softmax of a row with a sink
  // TODO: So far, this only copies the scores of the row.
  for (int j = 0; j < visible; ++j) p[j] = from_float<T>(s[j]);
  lse[row] = -sink;
  // END EXERCISE ch01-softmax
}

}  // namespace flashbook::naive
