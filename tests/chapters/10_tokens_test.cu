// The tokens of each rank, and the work that they cause.
#include <gtest/gtest.h>

#include "chapters/10_many_gpus/tokens.cuh"

namespace flashbook::many_gpus {
namespace {

/// Returns the visible pairs of a query of `rank` and a key of `other`, with the same distribution of tokens.
int64_t pairs(Order order, int tokens, int ranks, int rank, int other) {
  const Tokens queries = tokens_of(order, tokens, rank, ranks), keys = tokens_of(order, tokens, other, ranks);
  int64_t seen = 0;
  for (int i = 0; i < queries.total(); ++i) seen += keys.before(queries.place(i) + 1);
  return seen;
}

// Chapter 10's reason for zigzag, in numbers: c = N / 2P, and every part of another rank is 2 c^2 pairs.
TEST(Tokens, AZigzagCostsAllRanksTheSame) {
  constexpr int kTokens = 96;
  for (int ranks : {2, 3, 4, 8})
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t chunk = kTokens / (2 * ranks);
      for (int other = 0; other < ranks; ++other)
        EXPECT_EQ(pairs(Order::zigzag, kTokens, ranks, rank, other),
                  rank == other ? 2 * chunk * chunk + chunk : 2 * chunk * chunk);
    }
  EXPECT_EQ(pairs(Order::contiguous, kTokens, 2, 0, 1), 0);
  EXPECT_EQ(pairs(Order::contiguous, kTokens, 2, 1, 0), 48 * 48);
}

}  // namespace
}  // namespace flashbook::many_gpus
