#include "tests/support/direct.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/support/masks.h"

namespace flashbook::testing {
namespace {

/// Computes Philox4x32-10 independently, from the paper's text: a round multiplies two words and mixes the
/// other two with the high halves and the key, which grows by a constant.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const auto high = [](uint32_t x, uint32_t y) { return uint32_t(uint64_t(x) * y >> 32); };
    c = {high(0xcd9e8d57u, c[2]) ^ c[1] ^ key[0], 0xcd9e8d57u * c[2], high(0xd2511f53u, c[0]) ^ c[3] ^ key[1],
         0xd2511f53u * c[0]};
    key = {key[0] + 0x9e3779b9u, key[1] + 0xbb67ae85u};
  }
  return c;
}

/// Returns whether dropout keeps a pair. Among 32 keys, the eight with index modulo 8 equal to 2 t or 2 t + 1
/// share a call. Keys count from the first one of the query's document.
bool keeps_by_definition(const Spec& s, int b, int h, int i, int j) {
  if (const Documents& d = s.visibility.documents; !d.first_query.empty()) {
    std::size_t document = 0;
    while (d.first_query[document + 1] <= i) ++document;
    j -= d.first_key[document];
  }
  const auto words = philox({uint32_t(j / 32 * 4 + j % 8 / 2), uint32_t(i), uint32_t(h), uint32_t(b)},
                            {uint32_t(s.score.seed), uint32_t(s.score.seed >> 32)});
  const uint32_t word = words[j % 32 / 8];
  return double(j % 2 == 0 ? word & 0xffff : word >> 16) >= std::nearbyint(s.score.dropout * 65536);
}

}  // namespace

DirectRow::DirectRow(const Spec& s, const Inputs& inputs, int b, int h, int i)
    : o(s.value_dim), lse(-INFINITY) {
  const int shared = h / (s.heads / s.kv_heads);
  const auto q = [&](int c) {
    return inputs.q[((int64_t(b) * s.heads + h) * s.seqlen_q + i) * s.head_dim + c];
  };
  const auto kv = [&](const std::vector<float>& t, int width, int j, int c) {
    return t[((int64_t(b) * s.kv_heads + shared) * s.seqlen_k + j) * width + c];
  };
  const std::vector<float>& values = s.is_latent() ? inputs.k : inputs.v;
  const int value_width = s.is_latent() ? s.head_dim : s.value_dim;
  std::vector<int> keys;
  std::vector<long double> scores;
  for (int j = 0; j < s.seqlen_k; ++j) {
    if (!sees_by_definition(s, b, h, i, j)) continue;
    long double score = 0;
    for (int c = 0; c < s.head_dim; ++c) score += (long double)q(c) * kv(inputs.k, s.head_dim, j, c);
    score *= s.scale;
    if (s.score.softcap > 0) score = s.score.softcap * std::tanh(score / s.score.softcap);
    if (const auto& slopes = s.score.alibi; !slopes.empty()) {
      int sequence = slopes.size() == std::size_t(s.heads) ? 0 : b;
      if (const auto& first = s.visibility.documents.first_query; sequence == b && !first.empty())
        for (sequence = 0; first[sequence + 1] <= i;) ++sequence;
      if (slopes.size() == std::size_t(s.heads)) sequence = 0;
      score -= (long double)slopes[sequence * s.heads + h] * std::abs(own_key(s, b, i) - j);
    }
    if (!s.score.bias.values.empty()) score += s.score.bias.at(h, j - own_key(s, b, i));
    for (int times = times_listed(s, b, i, j); times > 0; --times) keys.push_back(j), scores.push_back(score);
  }
  if (scores.empty()) return;
  const long double largest = std::ranges::max(scores);
  long double sum = 0;
  for (long double score : scores) sum += std::exp(score - largest);
  lse = largest + std::log(sum);
  for (std::size_t j = 0; j < keys.size(); ++j) {
    if (s.score.dropout > 0 && !keeps_by_definition(s, b, h, i, keys[j])) continue;
    // The dropped fraction is a multiple of 2^-16.
    const long double left = 1 - std::nearbyint(s.score.dropout * 65536) / 65536;
    for (int c = 0; c < s.value_dim; ++c)
      o[c] += std::exp(scores[j] - largest) / sum / left * kv(values, value_width, keys[j], c);
  }
}

}  // namespace flashbook::testing
