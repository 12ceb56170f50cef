/// \file
/// Which keys a query may see: one value that the oracle, kernels, cost model, tests and figures query.
#pragma once
#include <string>

#include "common/features/list.h"

namespace flashbook {

struct Spec;

/// A rectangle of pairs. It may reach beyond the last query; keys beyond the last are not visible.
struct ScoreTile {
  int first_query, queries;
  int first_key, keys;
};

/// What a kernel must do with a tile.
enum class TileClass {
  skip,     ///< no pair is visible
  partial,  ///< every pair must be checked; some tiles that are full or could be skipped are partial, too
  full      ///< every pair is visible
};

/// Keys begin ... end - 1.
struct KeyRange {
  int begin, end;

  bool operator==(const KeyRange&) const = default;
};

/// Returns whether `query` of `head` (a query head) sees `key`.
bool sees(const Spec& spec, int batch, int head, int query, int key);

/// Returns the class of a tile. Exact for windows, prefixes, lengths and documents, and for any single pair.
TileClass classify(const Spec& spec, int batch, int head, const ScoreTile& tile);

/// Returns a range that contains every key seen by any of the queries: the bounds of a kernel's loop over
/// keys. {0, 0} if they see none.
KeyRange keys_seen(const Spec& spec, int batch, int head, int first_query, int queries);

/// Returns the visible (query, key) pairs of one head. A square causal mask counts N * N / 2, as the papers
/// do (leaving out half of the diagonal); all other masks are counted exactly.
double visible_pairs(const Spec& spec, int batch, int head);

/// Returns the visible pairs of all heads.
double visible_pairs(const Spec& spec);

/// Returns a report's text: "full", "causal", "window of 128 keys before and 0 after, 4 sinks".
std::string describe(const Visibility& visibility);

}  // namespace flashbook
