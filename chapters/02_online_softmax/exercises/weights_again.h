/// \file
/// Exercise ch02-again: recomputes the weights of a row from its log-sum-exp.
#pragma once
#include <algorithm>
#include <cmath>

#include "chapters/02_online_softmax/rows.h"

namespace flashbook {

// The gradient of attention needs each weight again, but only the row's log-sum-exp was kept. So its scores
// are recomputed, one tile of keys at a time. A popular write-up then says: "P of a tile is the softmax of
// the tile's scores".

constexpr int kTileKeys = 16;

// BEGIN EXERCISE ch02-again: a tile of P is its softmax
/// Adds the row's contribution to the gradient of V: to each key's row, its weight times `d_o`, [head_dim],
/// the gradient of the row of O. A masked key has the score -inf, and a masked row the log-sum-exp -inf.
inline void add_value_gradient(const Row& row, [[maybe_unused]] float lse, const float* d_o,
                               float* d_v) {  // [keys, head_dim]
  for (int first = 0; first < row.keys; first += kTileKeys) {
    const int keys = std::min(kTileKeys, row.keys - first);
    float weights[kTileKeys];
    float row_max = kMinusInfinity, row_sum = 0;
    for (int i = 0; i < keys; ++i) {
      weights[i] = score(row, first + i);
      row_max = std::max(row_max, weights[i]);
    }
    for (int i = 0; i < keys; ++i) {
      weights[i] = std::exp(weights[i] - row_max);
      row_sum += weights[i];
    }
    for (int i = 0; i < keys; ++i)
      for (int d = 0; d < row.head_dim; ++d)
        d_v[int64_t(first + i) * row.head_dim + d] += weights[i] / row_sum * d_o[d];
  }
}
// END EXERCISE ch02-again

}  // namespace flashbook
