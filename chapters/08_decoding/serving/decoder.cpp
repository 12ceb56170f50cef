#include "chapters/08_decoding/serving/decoder.h"

#include <algorithm>
#include <cmath>

#include "common/attention/random.h"

namespace flashbook::decoding {
namespace {

constexpr int kWidth = Decoder::kWidth;

/// Streams of the seed.
enum Stream : uint64_t { kEmbeddings, kPlaces, kQuery, kKey, kValue, kOutput, kVocabularyRows, kStreams };

/// Returns number `index` of a stream, uniform with variance 1.
float random_float(uint64_t seed, Stream stream, uint64_t index) {
  const uint64_t bits = random_bits(seed * kStreams + stream, index);
  return float(std::sqrt(3.0) * (2.0 * double(bits >> 11) * 0x1p-53 - 1.0));
}

/// Returns [results, kWidth]: rows of norm 1, so that results are as large as their inputs.
std::vector<float> random_weights(uint64_t seed, Stream stream, int results) {
  std::vector<float> weights(std::size_t(results) * kWidth);
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = random_float(seed, stream, i) / std::sqrt(float(kWidth));
  return weights;
}

std::vector<float> multiply(const std::vector<float>& weights, const std::vector<float>& x) {
  std::vector<float> results(weights.size() / kWidth);
  for (std::size_t row = 0; row < results.size(); ++row)
    for (int i = 0; i < kWidth; ++i) results[row] += weights[row * kWidth + i] * x[i];
  return results;
}

/// Applies RMS norm: the result has length sqrt(kWidth).
std::vector<float> normalised(std::vector<float> x) {
  float squares = 0;
  for (float value : x) squares += value * value;
  const float factor = std::sqrt(float(x.size()) / squares);
  for (float& value : x) value *= factor;
  return x;
}

}  // namespace

Decoder::Decoder(uint64_t seed)
    : seed_(seed),
      query_(random_weights(seed, kQuery, kHeads * kHeadDim)),
      key_(random_weights(seed, kKey, kKvHeads * kHeadDim)),
      value_(random_weights(seed, kValue, kKvHeads * kHeadDim)),
      output_(random_weights(seed, kOutput, kWidth)),
      vocabulary_(random_weights(seed, kVocabularyRows, kVocabulary)) {}

std::vector<float> Decoder::embed(int token, int place) const {
  std::vector<float> x(kWidth);
  for (int i = 0; i < kWidth; ++i)
    x[i] = random_float(seed_, kEmbeddings, uint64_t(token) * kWidth + i) +
           random_float(seed_, kPlaces, uint64_t(place) * kWidth + i);
  return x;
}

std::vector<float> Decoder::query(const std::vector<float>& x) const {
  return multiply(query_, normalised(x));
}
std::vector<float> Decoder::key(const std::vector<float>& x) const { return multiply(key_, normalised(x)); }
std::vector<float> Decoder::value(const std::vector<float>& x) const {
  return multiply(value_, normalised(x));
}

int Decoder::next_token(const std::vector<float>& x, const std::vector<float>& o) const {
  std::vector<float> sum = multiply(output_, o);
  for (int i = 0; i < kWidth; ++i) sum[i] += x[i];
  const std::vector<float> logits = multiply(vocabulary_, normalised(std::move(sum)));
  return int(std::ranges::max_element(logits) - logits.begin());
}

}  // namespace flashbook::decoding
