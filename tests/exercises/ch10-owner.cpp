#include "chapters/10_many_gpus/exercises/snake.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

using namespace many_gpus;

/// Assigns `tokens` tokens to ranks one by one.
struct DealtOut {
  DealtOut(int tokens, int block, int ranks) : had(std::size_t(ranks)) {
    for (int token = 0; token < tokens; ++token) {
      const int turn = token / block % (2 * ranks);
      owner.push_back(turn < ranks ? turn : 2 * ranks - 1 - turn);
      place.push_back(had[std::size_t(owner.back())]++);
    }
  }
  std::vector<int> owner, place, had;
};

std::string sizes(int tokens, int block, int ranks) {
  return std::to_string(tokens) + " tokens in blocks of " + std::to_string(block) + " on " +
         std::to_string(ranks) + " ranks";
}

void expect_owners(int tokens, int block, int ranks) {
  const DealtOut dealt(tokens, block, ranks);
  for (int token = 0; token < tokens; ++token)
    ASSERT_EQ(observed(owner_of(token, block, ranks)), dealt.owner[std::size_t(token)])
        << "the rank of token " << token << ", " << sizes(tokens, block, ranks);
}

void expect_places(int tokens, int block, int ranks) {
  const DealtOut dealt(tokens, block, ranks);
  for (int token = 0; token < tokens; ++token)
    ASSERT_EQ(observed(place_of(token, block, ranks)), dealt.place[std::size_t(token)])
        << "the place of token " << token << ", " << sizes(tokens, block, ranks);
}

void expect_counts(int tokens, int block, int ranks) {
  const DealtOut dealt(tokens, block, ranks);
  for (int rank = 0; rank < ranks; ++rank)
    ASSERT_EQ(observed(tokens_of_rank(rank, tokens, block, ranks)), dealt.had[std::size_t(rank)])
        << "how many rank " << rank << " has, " << sizes(tokens, block, ranks);
}

TEST(Owner, OfOneRound) { expect_owners(12, 4, 3); }
TEST(Owner, OfTheRoundBack) { expect_owners(48, 4, 3); }
TEST(Owner, OfBlocksOfOne) { expect_owners(40, 1, 4); }
TEST(Owner, PlacesOfWholeRounds) { expect_places(48, 4, 3); }
TEST(Owner, CountsOfWholeRounds) { expect_counts(32, 4, 4); }
TEST(Owner, CountsWhereTheLastBlockIsCut) {
  for (int tokens : {0, 1, 5, 13, 14, 22, 27}) expect_counts(tokens, 4, 3);
}

}  // namespace
}  // namespace flashbook::testing
