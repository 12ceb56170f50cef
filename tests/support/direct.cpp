#include "tests/support/direct.h"

#include <algorithm>
#include <cmath>

#include "tests/support/masks.h"

namespace flashbook::testing {

DirectRow::DirectRow(const Shape& s, const Inputs& inputs, int b, int h, int i)
    : o(s.value_dim()), lse(-INFINITY) {
  const int shared = h / (s.heads / s.kv_heads);
  const auto q = [&](int c) {
    return inputs.q[((int64_t(b) * s.heads + h) * s.seqlen_q + i) * s.head_dim + c];
  };
  const auto kv = [&](const std::vector<float>& t, int j, int c) {
    return t[((int64_t(b) * s.kv_heads + shared) * s.seqlen_k + j) * s.head_dim + c];
  };
  std::vector<int> keys;
  std::vector<long double> scores;
  for (int j = 0; j < s.seqlen_k; ++j) {
    if (!sees_by_definition(s, b, h, i, j)) continue;
    long double score = 0;
    for (int c = 0; c < s.head_dim; ++c) score += (long double)q(c) * kv(inputs.k, j, c);
    score *= s.scale;
    if (s.score.softcap > 0) score = s.score.softcap * std::tanh(score / s.score.softcap);
    if (!s.score.alibi.empty()) score -= (long double)s.score.alibi[h] * std::abs(own_key(s, b, i) - j);
    keys.push_back(j);
    scores.push_back(score);
  }
  if (scores.empty()) return;
  const long double largest = std::ranges::max(scores);
  long double sum = 0;
  for (long double score : scores) sum += std::exp(score - largest);
  lse = largest + std::log(sum);
  for (std::size_t j = 0; j < keys.size(); ++j)
    for (int c = 0; c < s.value_dim(); ++c)
      o[c] += std::exp(scores[j] - largest) / sum * kv(s.is_latent() ? inputs.k : inputs.v, keys[j], c);
}

}  // namespace flashbook::testing
