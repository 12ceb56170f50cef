/// \file
/// What becomes of a score between Q K^T and the softmax.
#pragma once
#include <vector>

namespace flashbook {

/// Functions on the scores s = scale * q k, in this order. The default leaves them as they are.
struct ScoreFunction {
  float softcap = 0;  ///< c: s becomes c * tanh(s / c). 0: no cap
  /// ALiBi's slopes, [heads]: slope * |i + seqlen_k - seqlen_q - j| is taken from query i's score of key j,
  /// and with documents or lengths it counts within them. Empty: none.
  std::vector<float> alibi = {};

  bool operator==(const ScoreFunction&) const = default;
};

}  // namespace flashbook
