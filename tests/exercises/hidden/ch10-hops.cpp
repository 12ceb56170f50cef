#include "chapters/10_many_gpus/exercises/hops.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using many_gpus::Hop;

void expect_formula(double (Hop::*predicted)() const, double (*want)(const Hop&)) {
  expect_predicted<Hop>({{"ranks", &Hop::ranks, {3, 4, 8, 16}},
                         {"tokens", &Hop::tokens, {1000, 8192, 65536}},
                         {"heads", &Hop::heads, {32, 64, 96}},
                         {"kv_heads", &Hop::kv_heads, {4, 8, 32}},
                         {"head_dim", &Hop::head_dim, {64, 256}},
                         {"flops_per_second", &Hop::flops_per_second, {600e12, 1500e12}},
                         {"bytes_per_second", &Hop::bytes_per_second, {25e9, 200e9, 750e9}}},
                        predicted, want);
}

double keys(const Hop& p) { return p.tokens * p.kv_heads * p.head_dim; }

TEST(Hops, BytesForward) {
  expect_formula(&Hop::bytes_forward, [](const Hop& p) { return 4 * keys(p); });
}
TEST(Hops, BytesBackward) {
  expect_formula(&Hop::bytes_backward, [](const Hop& p) { return 12 * keys(p); });
}
TEST(Hops, LeastTokens) {
  expect_formula(&Hop::least_tokens, [](const Hop& p) {
    const double seconds_a_token = 4 * p.kv_heads * p.head_dim / p.bytes_per_second;
    return seconds_a_token / (4 * p.heads * p.head_dim / p.flops_per_second);
  });
}
TEST(Hops, LeastTokensCausal) {
  expect_formula(&Hop::least_tokens_causal, [](const Hop& p) {
    const double seconds_a_token = 4 * p.kv_heads * p.head_dim / p.bytes_per_second;
    return seconds_a_token / (2 * p.heads * p.head_dim / p.flops_per_second);
  });
}
TEST(Hops, LeastTokensBackward) {
  expect_formula(&Hop::least_tokens_backward, [](const Hop& p) {
    const double seconds_a_token = 12 * p.kv_heads * p.head_dim / p.bytes_per_second;
    return seconds_a_token / (10 * p.heads * p.head_dim / p.flops_per_second);
  });
}
TEST(Hops, LastRank) {
  expect_formula(&Hop::last_rank, [](const Hop& p) { return 2 - 1 / p.ranks; });
}
TEST(Hops, BytesUlysses) {
  expect_formula(&Hop::bytes_ulysses, [](const Hop& p) {
    const double all = p.tokens * p.head_dim * 4 * (p.heads + p.kv_heads);
    return all - all / p.ranks;
  });
}
TEST(Hops, BytesDecoding) {
  expect_formula(&Hop::bytes_decoding, [](const Hop& p) {
    const double all = 4 * p.heads * (p.head_dim + 1);
    return all - all / p.ranks;
  });
}

}  // namespace
}  // namespace flashbook::testing
