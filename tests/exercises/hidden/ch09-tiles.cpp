#include "chapters/09_masks/exercises/tiles.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using masks::Tiled;

struct Counted {
  double executed = 0, full = 0, pairs = 0;
};

/// Tiles and pairs of n queries, of which query i sees keys first(i) to i.
template <typename First>
Counted count(int n, int tile, const First& first) {
  Counted counted;
  for (int row = 0; row < n; row += tile)
    for (int column = 0; column < n; column += tile) {
      int seen = 0;
      const int end = std::min(row + tile, n);
      for (int query = row; query < end; ++query)
        seen += std::max(std::min(query + 1, column + tile) - std::max(first(query), column), 0);
      counted.executed += seen > 0;
      counted.full += seen == (end - row) * tile;
      counted.pairs += seen;
    }
  return counted;
}

Counted causal(const Tiled& p, double n) {
  return count(int(n), int(p.tile), [](int) { return 0; });
}
Counted under_window(const Tiled& p) {
  return count(int(p.n), int(p.tile), [&](int query) { return std::max(query - int(p.window), 0); });
}

void expect_formula(double (Tiled::*predicted)() const, double (*want)(const Tiled&)) {
  expect_predicted<Tiled>({{"n", &Tiled::n, {1, 127, 1000, 1025, 2048}},
                           {"window", &Tiled::window, {0, 1, 127, 129, 300, 1000, 5000}},
                           {"documents", &Tiled::documents, {1, 3, 7}},
                           {"length", &Tiled::length, {5, 64, 200, 500}},
                           {"tile", &Tiled::tile, {64, 128, 192}}},
                          predicted, want);
}

TEST(Tiles, UnderACausalMask) {
  expect_formula(&Tiled::causal_tiles, [](const Tiled& p) { return causal(p, p.n).executed; });
}
TEST(Tiles, ThatNeedTheCausalMask) {
  expect_formula(&Tiled::causal_partial_tiles, [](const Tiled& p) {
    const Counted counted = causal(p, p.n);
    return counted.executed - counted.full;
  });
}
TEST(Tiles, UnderAWindow) {
  expect_formula(&Tiled::window_tiles, [](const Tiled& p) { return under_window(p).executed; });
}
TEST(Tiles, FullUnderAWindow) {
  expect_formula(&Tiled::window_full_tiles, [](const Tiled& p) { return under_window(p).full; });
}
TEST(Tiles, OfPackedDocuments) {
  expect_formula(&Tiled::varlen_tiles,
                 [](const Tiled& p) { return p.documents * causal(p, p.length).executed; });
}
TEST(Tiles, OfDocumentsAsAMask) {
  expect_formula(&Tiled::document_tiles, [](const Tiled& p) {
    const int length = int(p.length);
    return count(int(p.documents) * length, int(p.tile), [&](int query) { return query / length * length; })
        .executed;
  });
}
TEST(Tiles, ShareOfVisiblePairs) {
  expect_formula(&Tiled::visible_share, [](const Tiled& p) {
    const Counted counted = under_window(p);
    return counted.pairs / (counted.executed * p.tile * p.tile);
  });
}

}  // namespace
}  // namespace flashbook::testing
