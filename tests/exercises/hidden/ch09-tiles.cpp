#define DIGESTS(...) static_assert(true)  // the tests below take their place
#include "tests/exercises/ch09-tiles.cpp"

namespace flashbook::testing {
namespace {

struct Counted {
  double executed = 0, full = 0, pairs = 0;
};

/// Counts the tiles and pairs of n queries, where query i sees keys first(i) to i.
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

Counted causal(const Problem& p, double n) {
  return count(int(n), int(p.tile), [](int) { return 0; });
}
Counted under_window(const Problem& p) {
  return count(int(p.n), int(p.tile), [&](int query) { return std::max(query - int(p.window), 0); });
}

PREDICTION(Tiles, UnderACausalMask, causal_tiles) { return causal(p, p.n).executed; }
PREDICTION(Tiles, ThatNeedTheCausalMask, causal_partial_tiles) {
  const Counted counted = causal(p, p.n);
  return counted.executed - counted.full;
}
PREDICTION(Tiles, UnderAWindow, window_tiles) { return under_window(p).executed; }
PREDICTION(Tiles, FullUnderAWindow, window_full_tiles) { return under_window(p).full; }
PREDICTION(Tiles, OfPackedDocuments, varlen_tiles) { return p.documents * causal(p, p.length).executed; }
PREDICTION(Tiles, OfDocumentsAsAMask, document_tiles) {
  const int length = int(p.length);
  return count(int(p.documents) * length, int(p.tile), [&](int query) { return query / length * length; })
      .executed;
}
PREDICTION(Tiles, ShareOfVisiblePairs, visible_share) {
  const Counted counted = under_window(p);
  return counted.pairs / (counted.executed * p.tile * p.tile);
}

}  // namespace
}  // namespace flashbook::testing
