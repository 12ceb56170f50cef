#define DIGESTS(...) static_assert(true)  // the tests below take their place
#include "tests/exercises/ch10-hops.cpp"

namespace flashbook::testing {
namespace {

double keys(const Problem& p) { return p.tokens * p.kv_heads * p.head_dim; }

PREDICTION(Hops, BytesForward, bytes_forward) { return 4 * keys(p); }
PREDICTION(Hops, BytesBackward, bytes_backward) { return 12 * keys(p); }
PREDICTION(Hops, LeastTokens, least_tokens) {
  const double seconds_a_token = 4 * p.kv_heads * p.head_dim / p.bytes_per_second;
  return seconds_a_token / (4 * p.heads * p.head_dim / p.flops_per_second);
}
PREDICTION(Hops, LeastTokensCausal, least_tokens_causal) {
  const double seconds_a_token = 4 * p.kv_heads * p.head_dim / p.bytes_per_second;
  return seconds_a_token / (2 * p.heads * p.head_dim / p.flops_per_second);
}
PREDICTION(Hops, LeastTokensBackward, least_tokens_backward) {
  const double seconds_a_token = 12 * p.kv_heads * p.head_dim / p.bytes_per_second;
  return seconds_a_token / (10 * p.heads * p.head_dim / p.flops_per_second);
}
PREDICTION(Hops, LastRank, last_rank) { return 2 - 1 / p.ranks; }
PREDICTION(Hops, BytesUlysses, bytes_ulysses) {
  const double all = p.tokens * p.head_dim * 4 * (p.heads + p.kv_heads);
  return all - all / p.ranks;
}
PREDICTION(Hops, BytesDecoding, bytes_decoding) {
  const double all = 4 * p.heads * (p.head_dim + 1);
  return all - all / p.ranks;
}

}  // namespace
}  // namespace flashbook::testing
