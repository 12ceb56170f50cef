// The tokens of each rank, and the work that they cause.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "chapters/10_many_gpus/tokens.cuh"

namespace flashbook::many_gpus {
namespace {

TEST(Tokens, EveryTokenHasOneRankAndItsPlace) {
  for (const Order order : {Order::contiguous, Order::zigzag})
    for (int tokens : {1, 2, 7, 8, 100, 129})
      for (int ranks : {1, 2, 3, 4, 8}) {
        std::vector<int> owners(tokens);
        int most = 0, least = tokens;
        for (int rank = 0; rank < ranks; ++rank) {
          const Tokens own = tokens_of(order, tokens, rank, ranks);
          for (int i = 0; i < own.total(); ++i) {
            ++owners[own.place(i)];
            EXPECT_EQ(own.before(own.place(i)), i);
            EXPECT_EQ(own.before(own.place(i) + 1), i + 1);
          }
          EXPECT_EQ(own.before(0), 0);
          EXPECT_EQ(own.before(tokens), own.total());
          most = std::max(most, own.total()), least = std::min(least, own.total());
        }
        EXPECT_EQ(owners, std::vector<int>(tokens, 1)) << tokens << " on " << ranks;
        EXPECT_LE(most - least, order == Order::zigzag ? 2 : 1);
      }
}

// With stripes, a query sees the same keys by positions within ranks and the shift between them as by
// positions in the sequence.
TEST(Tokens, StripesSeeByAnotherShift) {
  for (int ranks : {1, 2, 3, 4, 8})
    for (int shift : {-20, -3, 0, 1, 7, 40})
      for (int rank = 0; rank < ranks; ++rank)
        for (int other = 0; other < ranks; ++other) {
          const Tokens queries = tokens_of(Order::striped, 33, rank, ranks),
                       keys = tokens_of(Order::striped, 33 + shift, other, ranks);
          const int local = shift_between(Order::striped, shift, rank, other, ranks);
          for (int i = 0; i < queries.total(); ++i) {
            int seen = 0;
            for (int key = other; key < 33 + shift; key += ranks) seen += key <= i * ranks + rank + shift;
            ASSERT_EQ(keys.before(queries.place(i) + local + 1), seen)
                << rank << " and " << other << " of " << ranks;
          }
          if (shift == 0) {
            EXPECT_EQ(local, other <= rank ? 0 : -1);
          }
        }
  for (int tokens : {1, 7, 8, 100})
    for (int ranks : {1, 3, 8}) {
      int sum = 0;
      for (int rank = 0; rank < ranks; ++rank) sum += tokens_of(Order::striped, tokens, rank, ranks).total();
      EXPECT_EQ(sum, tokens);
    }
}

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
