/// \file
/// Exercise ch08-lists: from the entries of a list to rows of a cache.
#pragma once
#include <vector>

namespace flashbook::decoding {

// An indexer lists the keys that a token attends to, by their positions in the sequence; -1 is no key. A
// table lists the sequence's pages. Keys from `length` on have not been written yet.

/// A sequence's keys, in pages.
struct ListedPages {
  std::vector<int> table;  ///< the sequence's pages, in order
  int page_rows = 64;      ///< keys per page
  int length = 0;          ///< keys of the sequence
};

// BEGIN EXERCISE ch08-lists: one key too few
/// Returns the row of the cache for each entry of a list, counted over all pages; -1 for an entry without a
/// key, and for one that names a key that does not exist.
inline std::vector<int> rows_of(const std::vector<int>& list, const ListedPages& pages) {
  std::vector<int> rows(list.size(), -1);
  for (std::size_t i = 0; i + 1 < list.size(); ++i)
    if (list[i] >= 0) rows[i] = pages.table[0] * pages.page_rows + list[i];
  return rows;
}
// END EXERCISE ch08-lists

}  // namespace flashbook::decoding
