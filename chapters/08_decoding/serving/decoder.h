/// \file
/// A toy model that generates tokens without meaning: one layer, with random weights from a seed.
#pragma once
#include <cstdint>
#include <vector>

namespace flashbook::decoding {

/// A one-layer decoder on the host, in float: embedding and position, RMS norm, projections to queries, keys
/// and values, output projection, and the most likely token. The caller computes attention.
class Decoder {
 public:
  static constexpr int kHeads = 8, kKvHeads = 2, kHeadDim = 64;
  static constexpr int kWidth = kHeads * kHeadDim, kVocabulary = 512;

  explicit Decoder(uint64_t seed);

  /// Returns the embedding of a token at a position, counted from 0. [kWidth]
  std::vector<float> embed(int token, int place) const;

  std::vector<float> query(const std::vector<float>& x) const;  ///< [kHeads, kHeadDim]
  std::vector<float> key(const std::vector<float>& x) const;    ///< [kKvHeads, kHeadDim]
  std::vector<float> value(const std::vector<float>& x) const;  ///< [kKvHeads, kHeadDim]

  /// Returns the most likely token after the one with row `x` and attention result `o`, [kHeads, kHeadDim].
  int next_token(const std::vector<float>& x, const std::vector<float>& o) const;

 private:
  uint64_t seed_;
  std::vector<float> query_, key_, value_, output_, vocabulary_;  // [results, kWidth]
};

}  // namespace flashbook::decoding
