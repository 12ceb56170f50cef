//| # What steps 1 to 3 share
//|
//| This file has a loop over the rows of a problem, and the score of one key.
//|
//| In attention, each query is independent: it determines how well every key matches, and averages the values
//| with these weights. So steps 1 to 3 are written for a single row of Q. This file has everything around
//| that row: batch, heads, the causal mask, element types.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/attention/spec.h"
#include "common/numeric/float_formats.h"

namespace flashbook {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

//| ## One row
//|
//| A row is one query, the keys that it sees and their values. The causal mask is already applied: query `i`
//| sees the first `visible_keys(i)` keys, so a mask merely makes the row shorter.

/// One query, and the keys and values that it attends to.
struct Row {
  const float* q;  // [head_dim]
  const float* k;  // [keys, head_dim]
  const float* v;  // [keys, head_dim]
  int keys;        // number of keys that the query sees, at least 1
  int head_dim;
  float scale;
};

//| ## The score of a key
//|
//| The scaled dot product of the query and the key. C++ fixes the order of floating-point additions, so the
//| compiler may multiply eight pairs at once, but it must not split the sum over the lanes of a vector. Each
//| addition waits 2 to 4 cycles for the previous one. In the meantime, only the next key's sum can start, if
//| the processor looks that far ahead.
//|
//| Steps 1 to 3 leave it at that, since they are about the softmax. Step 4 arranges the same sums so that
//| neighbouring lanes belong to different keys. Then no order changes, and every lane is busy.

/// scale * (q . k[key])
inline float score(const Row& row, int key) {
  const float* k = row.k + int64_t(key) * row.head_dim;  // [head_dim]
  float sum = 0;                                         // one chain of head_dim additions
  for (int d = 0; d < row.head_dim; ++d) sum += row.q[d] * k[d];
  return row.scale * sum;
}

//| ## All rows
//|
//| Element types differ in how a number is stored, not in how it is computed. Everything is widened to float
//| first, and rounded once, when a row of O is done. A head's keys and values are widened before its rows,
//| because every row reads all of them.

/// Returns the values as floats.
template <typename T>
std::vector<float> to_floats(const T* values, int64_t count) {
  std::vector<float> floats(count);
  std::transform(values, values + count, floats.begin(), [](T value) { return to_float(value); });
  return floats;
}

/// Calls `attention_row(row, o)` for every row. It adds the row of O to `o`, [head_dim] zeros, and returns
/// the row's natural log-sum-exp.
template <typename T, typename AttentionRow>
void for_each_row(const Spec& spec,
                  const T* q,  // [batch, heads, seqlen_q, head_dim]
                  const T* k,  // [batch, kv_heads, seqlen_k, head_dim]
                  const T* v,  // [batch, kv_heads, seqlen_k, head_dim]
                  T* o,        // [batch, heads, seqlen_q, head_dim]
                  float* lse,  // [batch, heads, seqlen_q]
                  AttentionRow attention_row) {
  const int64_t q_head_elements = int64_t(spec.seqlen_q) * spec.head_dim;
  const int64_t k_head_elements = int64_t(spec.seqlen_k) * spec.head_dim;
  const int heads_per_kv_head = spec.heads / spec.kv_heads;

  for (int64_t head = 0; head < int64_t(spec.batch) * spec.heads; ++head) {
    // This also works across the batch: batch b starts at head b * heads, and so at key head b * kv_heads.
    const int64_t kv_head = head / heads_per_kv_head;
    const std::vector<float> head_q = to_floats(q + head * q_head_elements, q_head_elements);
    const std::vector<float> head_k = to_floats(k + kv_head * k_head_elements, k_head_elements);
    const std::vector<float> head_v = to_floats(v + kv_head * k_head_elements, k_head_elements);

    for (int query = 0; query < spec.seqlen_q; ++query) {
      const int64_t row_index = head * spec.seqlen_q + query;
      const Row row = {.q = head_q.data() + int64_t(query) * spec.head_dim,
                       .k = head_k.data(),
                       .v = head_v.data(),
                       .keys = spec.visible_keys(query),
                       .head_dim = spec.head_dim,
                       .scale = spec.scale};

      std::vector<float> row_o(spec.head_dim);  // zeros; sums are float32 for every T
      // An average over no keys would be 0 / 0. By convention, O is 0 and the sum is empty.
      lse[row_index] = row.keys == 0 ? kMinusInfinity : attention_row(row, row_o.data());
      std::transform(row_o.begin(), row_o.end(), o + row_index * spec.head_dim, from_float<T>);
    }
  }
}

}  // namespace flashbook
