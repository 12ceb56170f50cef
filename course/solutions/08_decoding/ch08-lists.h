/// Returns the row of the cache for each entry of a list, counted over all pages; -1 for an entry without a
/// key, and for one that names a key that does not exist.
inline std::vector<int> rows_of(const std::vector<int>& list, const ListedPages& pages) {
  std::vector<int> rows(list.size(), -1);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const int key = list[i];
    if (key < 0 || key >= pages.length) continue;
    // Pages are consecutive only until one of them moves.
    rows[i] = pages.table[key / pages.page_rows] * pages.page_rows + key % pages.page_rows;
  }
  return rows;
}
