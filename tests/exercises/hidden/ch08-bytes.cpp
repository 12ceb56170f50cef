#include "chapters/08_decoding/exercises/bytes.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using decoding::Cache;

/// Of a token, in all layers, with so many heads of keys and of values.
double token(const Cache& p, double kv_heads) { return p.layers * kv_heads * 2 * p.head_dim * 2; }

double intensity_of_latent_head(const Cache& p) {
  const double elements = p.latent + p.position;
  return (2 * elements + 2 * p.latent) / (2 * elements);
}

void expect_formula(double (Cache::*predicted)() const, double (*want)(const Cache&)) {
  expect_predicted<Cache>({{"layers", &Cache::layers, {28, 40, 61, 80}},
                           {"heads", &Cache::heads, {16, 40, 64, 128}},
                           {"kv_heads", &Cache::kv_heads, {1, 2, 4}},
                           {"head_dim", &Cache::head_dim, {64, 96, 192, 256}},
                           {"latent", &Cache::latent, {256, 384, 768}},
                           {"position", &Cache::position, {32, 96, 128}},
                           {"memory", &Cache::memory, {80e9, 192e9}},
                           {"weights", &Cache::weights, {7e9, 29e9}},
                           {"bytes_per_second", &Cache::bytes_per_second, {3.1e12, 7.7e12}},
                           {"flops_per_second", &Cache::flops_per_second, {620e12, 2100e12}},
                           {"tokens", &Cache::tokens, {1000, 4096, 5000}},
                           {"sequences", &Cache::sequences, {1, 8, 48}},
                           {"parts", &Cache::parts, {2, 5, 12}}},
                          predicted, want);
}

TEST(Bytes, KeysWithoutACache) {
  expect_formula(&Cache::keys_without_cache, [](const Cache& p) {
    double keys = 0;
    for (int length = 1; length <= p.tokens; ++length) keys += length;
    return keys;
  });
}
TEST(Bytes, AToken) {
  expect_formula(&Cache::token_bytes, [](const Cache& p) { return token(p, p.kv_heads); });
}
TEST(Bytes, ATokenUngrouped) {
  expect_formula(&Cache::token_bytes_ungrouped, [](const Cache& p) { return token(p, p.heads); });
}
TEST(Bytes, ATokenOfLatents) {
  expect_formula(&Cache::token_bytes_of_latent,
                 [](const Cache& p) { return 2 * p.layers * (p.latent + p.position); });
}
TEST(Bytes, SequencesThatFit) {
  expect_formula(&Cache::sequences_that_fit, [](const Cache& p) {
    return std::floor((p.memory - p.weights) / (token(p, p.kv_heads) * p.tokens));
  });
}
TEST(Bytes, Microseconds) {
  expect_formula(&Cache::microseconds, [](const Cache& p) {
    return 1e6 * p.sequences * p.tokens * token(p, p.kv_heads) / p.layers / p.bytes_per_second;
  });
}
TEST(Bytes, Partials) {
  expect_formula(&Cache::partial_bytes,
                 [](const Cache& p) { return p.parts * p.heads * (p.head_dim + 1) * sizeof(float); });
}
TEST(Bytes, IntensityOfAGroup) {
  expect_formula(&Cache::intensity_of_group, [](const Cache& p) { return p.heads / p.kv_heads; });
}
TEST(Bytes, IntensityOfALatentHead) {
  expect_formula(&Cache::intensity_of_latent_head, intensity_of_latent_head);
}
TEST(Bytes, HeadsAtTheRidge) {
  expect_formula(&Cache::heads_at_ridge, [](const Cache& p) {
    return std::ceil(p.flops_per_second / p.bytes_per_second / intensity_of_latent_head(p));
  });
}

}  // namespace
}  // namespace flashbook::testing
