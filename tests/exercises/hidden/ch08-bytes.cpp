#define DIGESTS(...) static_assert(true)  // the tests below take their place
#include "tests/exercises/ch08-bytes.cpp"

namespace flashbook::testing {
namespace {

/// Returns the bytes per token in all layers, with this many heads of keys and of values.
double token(const Problem& p, double kv_heads) { return p.layers * kv_heads * 2 * p.head_dim * 2; }

double intensity_of_latent_head(const Problem& p) {
  const double elements = p.latent + p.position;
  return (2 * elements + 2 * p.latent) / (2 * elements);
}

PREDICTION(Bytes, KeysWithoutACache, keys_without_cache) {
  double keys = 0;
  for (int length = 1; length <= p.tokens; ++length) keys += length;
  return keys;
}
PREDICTION(Bytes, AToken, token_bytes) { return token(p, p.kv_heads); }
PREDICTION(Bytes, ATokenUngrouped, token_bytes_ungrouped) { return token(p, p.heads); }
PREDICTION(Bytes, ATokenOfLatents, token_bytes_of_latent) { return 2 * p.layers * (p.latent + p.position); }
PREDICTION(Bytes, SequencesThatFit, sequences_that_fit) {
  return std::floor((p.memory - p.weights) / (token(p, p.kv_heads) * p.tokens));
}
PREDICTION(Bytes, Microseconds, microseconds) {
  return 1e6 * p.sequences * p.tokens * token(p, p.kv_heads) / p.layers / p.bytes_per_second;
}
PREDICTION(Bytes, Partials, partial_bytes) { return p.parts * p.heads * (p.head_dim + 1) * sizeof(float); }
PREDICTION(Bytes, IntensityOfAGroup, intensity_of_group) { return p.heads / p.kv_heads; }
PREDICTION(Bytes, IntensityOfALatentHead, intensity_of_latent_head) { return intensity_of_latent_head(p); }
PREDICTION(Bytes, HeadsAtTheRidge, heads_at_ridge) {
  return std::ceil(p.flops_per_second / p.bytes_per_second / intensity_of_latent_head(p));
}

}  // namespace
}  // namespace flashbook::testing
