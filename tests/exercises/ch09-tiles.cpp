#include "chapters/09_masks/exercises/tiles.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using namespace masks;

struct Counted {
  int64_t executed = 0, full = 0, pairs = 0;
};

/// Tiles and pairs of n queries, of which query i sees keys first(i) to i.
template <typename First>
Counted count(int64_t n, const First& first) {
  Counted counted;
  for (int64_t row = 0; row < n; row += kTile)
    for (int64_t column = 0; column < n; column += kTile) {
      int64_t seen = 0;
      const int64_t end = std::min(row + kTile, n);
      for (int64_t query = row; query < end; ++query)
        seen += std::max<int64_t>(std::min(query + 1, column + kTile) - std::max(first(query), column), 0);
      counted.executed += seen > 0;
      counted.full += seen == (end - row) * kTile;
      counted.pairs += seen;
    }
  return counted;
}

Counted under_window(int64_t n, int64_t window) {
  return count(n, [&](int64_t query) { return std::max<int64_t>(query - window, 0); });
}

void expect_count(int64_t predicted, int64_t want) { expect_predicted(double(predicted), double(want), 0); }

constexpr int64_t kLengths[] = {128, 1000, 1024, 1025, 4096};
constexpr std::pair<int64_t, int64_t> kWindows[] = {{1024, 128}, {4096, 1024}, {2048, 1000}, {1100, 300}};
constexpr std::pair<int64_t, int64_t> kDocuments[] = {{8, 1024}, {5, 128}, {3, 200}, {7, 500}};

TEST(Tiles, UnderACausalMask) {
  for (int64_t n : kLengths) expect_count(causal_tiles(n), under_window(n, n).executed);
}
TEST(Tiles, ThatNeedTheCausalMask) {
  for (int64_t n : kLengths) {
    const Counted counted = under_window(n, n);
    expect_count(causal_partial_tiles(n), counted.executed - counted.full);
  }
}
TEST(Tiles, UnderAWindow) {
  for (const auto& [n, window] : kWindows)
    expect_count(window_tiles(n, window), under_window(n, window).executed);
}
TEST(Tiles, FullUnderAWindow) {
  for (const auto& [n, window] : kWindows)
    expect_count(window_full_tiles(n, window), under_window(n, window).full);
}
TEST(Tiles, OfPackedDocuments) {
  for (const auto& [documents, length] : kDocuments)
    expect_count(packed_tiles(documents, length), documents * under_window(length, length).executed);
}
TEST(Tiles, OfDocumentsAsAMask) {
  for (const auto& [documents, length] : kDocuments) {
    const int64_t own = length;
    expect_count(document_tiles(documents, length),
                 count(documents * length, [&](int64_t query) { return query / own * own; }).executed);
  }
}
TEST(Tiles, ShareOfVisiblePairs) {
  for (const auto& [n, window] : kWindows) {
    const Counted counted = under_window(n, window);
    expect_predicted(visible_share(n, window),
                     double(counted.pairs) / double(counted.executed * kTile * kTile), 1e-6);
  }
}

}  // namespace
}  // namespace flashbook::testing
