/// \file
/// What becomes of a score between Q K^T and the softmax, and of a probability after it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace flashbook {

/// A learned bias by distance, for each head (Shaw et al., arXiv 1803.02155; T5, arXiv 1910.10683, whose
/// buckets are runs of equal values).
struct RelativeBias {
  int reach = 0;                   ///< keys further away have the bias of the outermost
  std::vector<float> values = {};  ///< [heads, 2 * reach + 1]; empty: none

  /// What is added to the score of a key that lies `distance` keys after the query's own.
  float at(int head, int64_t distance) const {
    const int64_t place = std::clamp<int64_t>(distance, -reach, reach) + reach;
    return values[std::size_t(head * (2 * int64_t(reach) + 1) + place)];
  }
  bool operator==(const RelativeBias&) const = default;
};

/// Functions on the scores s = scale * q k, in this order. The default leaves them as they are.
struct ScoreFunction {
  float softcap = 0;  ///< c: s becomes c * tanh(s / c). 0: no cap
  /// ALiBi's slopes, [heads]: slope * |i + seqlen_k - seqlen_q - j| is taken from query i's score of key j,
  /// and with documents or lengths it counts within them. Empty: none.
  std::vector<float> alibi = {};
  RelativeBias bias = {};  ///< counts distances as ALiBi does
  /// The part of the probabilities that is left out (dropout.h), 0 to 1: O is a sum over the others, times
  /// 1 / (1 - dropout). The log-sum-exp is that of all. 0: none.
  float dropout = 0;
  uint64_t seed = 0;  ///< of the dropout

  bool operator==(const ScoreFunction&) const = default;
};

}  // namespace flashbook
