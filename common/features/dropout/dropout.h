/// \file
/// Decides which probabilities dropout removes. The decision depends only on an element's position and a
/// seed, so the oracle, every kernel and every pass over the same pair agree, whatever their tiles are.
#pragma once
#include <cmath>
#include <cstdint>

namespace flashbook {

/// Four words of random bits, or the counter from which they are computed.
struct PhiloxWords {
  uint32_t word[4];
};

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011, section 3.3) encrypts the counter in ten rounds of two
/// products each. Any counter can be computed directly, and no state is carried from one to the next.
constexpr PhiloxWords philox4x32_10(PhiloxWords counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t(0xd2511f53) * counter.word[0], b = uint64_t(0xcd9e8d57) * counter.word[2];
    counter = {{uint32_t(b >> 32) ^ counter.word[1] ^ key0, uint32_t(b),
                uint32_t(a >> 32) ^ counter.word[3] ^ key1, uint32_t(a)}};
    key0 += 0x9e3779b9, key1 += 0xbb67ae85;
  }
  return counter;
}

/// Dropout in the form passed to kernels. A probability is dropped if its 16 random bits are below a
/// threshold; the others are multiplied by `factor`, so that the expected sum stays 1. So a dropout of 0.1 is
/// rounded to the nearest multiple of 2^-16.
struct Dropout {
  uint32_t threshold;  ///< in units of 2^-16
  uint32_t seed[2];
  float factor;  ///< 1 / (1 - threshold / 2^16)

  static constexpr int kKeysPerDraw = 32;  ///< four calls produce the bits of 32 keys

  Dropout() = default;
  Dropout(float probability, uint64_t seed)
      : threshold(uint32_t(std::fmin(std::nearbyint(probability * 65536.0f), 65535.0f))),
        seed{uint32_t(seed), uint32_t(seed >> 32)},
        factor(65536.0f / float(65536 - threshold)) {}

  /// Returns the random bits for the eight keys that one thread holds in a row of 32 keys, which starts at
  /// `first` (a multiple of 32): in each group of 8 keys, positions 2 * quarter and 2 * quarter + 1. Word j
  /// has the bits of key first + 8 * j + 2 * quarter + i from bit 16 * i on.
  constexpr PhiloxWords bits(int batch, int head, int query, int first, int quarter) const {
    return philox4x32_10(
        {{uint32_t(first / (kKeysPerDraw / 4) + quarter), uint32_t(query), uint32_t(head), uint32_t(batch)}},
        seed[0], seed[1]);
  }
  /// Returns whether a word keeps its key i (0 or 1).
  constexpr bool keeps(uint32_t word, int i) const { return (word >> 16 * i & 0xffff) >= threshold; }
  /// Returns whether a single probability is kept. `key` is relative to the query's document.
  constexpr bool keeps(int batch, int head, int query, int key) const {
    const int first = key / kKeysPerDraw * kKeysPerDraw;
    const PhiloxWords eight = bits(batch, head, query, first, key % 8 / 2);
    return keeps(eight.word[key / 8 % 4], key % 2);
  }
};

}  // namespace flashbook
