#include "chapters/10_many_gpus/exercises/neighbour.h"
#include "tests/exercises/ranks.h"

namespace flashbook::testing {
namespace {

class Edges : public MachineTest {};

void expect_edges(int ranks, int count) {
  std::vector<RankArray> first, last, before, behind;
  for (int rank = 0; rank < ranks; ++rank) {
    first.emplace_back(rank, random_numbers(std::size_t(count), unsigned(2 * rank)));
    last.emplace_back(rank, random_numbers(std::size_t(count), unsigned(2 * rank + 1)));
    before.emplace_back(rank, std::vector<float>(std::size_t(count), NAN));
    behind.emplace_back(rank, std::vector<float>(std::size_t(count), NAN));
  }
  run_on_ranks(ranks, [&](device::Rank& rank) {
    const auto r = std::size_t(rank.number());
    device::Queue queue;
    many_gpus::exchange_edges(rank, queue, first[r].data(), last[r].data(), before[r].data(),
                              behind[r].data(), std::size_t(count) * sizeof(float));
    queue.synchronize();
  });
  if (::testing::Test::HasFailure()) return;
  Comparison comparison;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> got[] = {before[std::size_t(rank)].download(),
                                      behind[std::size_t(rank)].download()};
    for (int i = 0; i < count; ++i) {
      comparison.expect(
          got[0][std::size_t(i)], last[std::size_t((rank + ranks - 1) % ranks)].values[std::size_t(i)], 0,
          [&] { return "rank " + std::to_string(rank) + ", key " + std::to_string(i) + " before"; });
      comparison.expect(
          got[1][std::size_t(i)], first[std::size_t((rank + 1) % ranks)].values[std::size_t(i)], 0,
          [&] { return "rank " + std::to_string(rank) + ", key " + std::to_string(i) + " behind"; });
    }
  }
  comparison.finish();
}

TEST_F(Edges, OfThreeRanks) { expect_edges(3, 16); }
TEST_F(Edges, OfFourRanks) { expect_edges(4, 5); }
TEST_F(Edges, OfTwoRanks) { expect_edges(2, 8); }

}  // namespace
}  // namespace flashbook::testing
