#include "chapters/10_many_gpus/exercises/ring_sum.cuh"
#include "tests/exercises/ranks.h"
#include "tests/support/machine.h"

namespace flashbook::testing {
namespace {

class RingSum : public MachineTest {};

void expect_sum(int ranks, int count, Async async, unsigned seed = 1) {
  const InBackground mode(async, seed);
  std::vector<RankArray> sums, own, other;
  for (int rank = 0; rank < ranks; ++rank) {
    sums.emplace_back(rank, std::vector<float>(std::size_t(count), 0.0f));
    own.emplace_back(rank, random_numbers(std::size_t(count), unsigned(rank)));
    other.emplace_back(rank, std::vector<float>(std::size_t(count), NAN));
  }
  run_on_ranks(ranks, [&](device::Rank& rank) {
    const auto r = std::size_t(rank.number());
    float* const held[2] = {own[r].data(), other[r].data()};
    many_gpus::sum_round_the_ring(rank, sums[r].data(), held, count);
  });
  if (::testing::Test::HasFailure()) return;
  std::vector<double> want(std::size_t(count), 0.0);  // computed last, so that no rank finds it in memory
  for (const RankArray& one : own)
    for (int i = 0; i < count; ++i) want[std::size_t(i)] += one.values[std::size_t(i)];
  Comparison comparison;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> got = sums[std::size_t(rank)].download();
    for (int i = 0; i < count; ++i)
      comparison.expect(got[std::size_t(i)], want[std::size_t(i)], 1e-4,
                        [&] { return "number " + std::to_string(i) + " of rank " + std::to_string(rank); });
  }
  comparison.finish();
}

TEST_F(RingSum, OfOneRank) { expect_sum(1, 100, Async::lazy); }
TEST_F(RingSum, OfTwoRanks) { expect_sum(2, 100, Async::eager); }
TEST_F(RingSum, OfThreeRanksInAnyOrder) {
  for (unsigned seed = 1; seed <= 12; ++seed) expect_sum(3, 40, Async::random, seed);
}
TEST_F(RingSum, OfEightRanksInAnyOrder) {
  for (unsigned seed = 1; seed <= 6; ++seed) expect_sum(8, 30, Async::random, seed);
}

}  // namespace
}  // namespace flashbook::testing
