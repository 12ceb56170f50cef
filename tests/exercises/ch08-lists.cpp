#include "chapters/08_decoding/exercises/listed_keys.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

void expect_rows(const std::vector<int>& list, const decoding::ListedPages& pages) {
  const std::vector<int> rows = decoding::rows_of(list, pages);
  ASSERT_EQ(observed(rows.size()), list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const int key = list[i], at = key / pages.page_rows;
    const bool exists = key >= 0 && key < pages.length;
    EXPECT_EQ(observed(rows[i]), exists ? pages.table[at] * pages.page_rows + key % pages.page_rows : -1)
        << "the row of entry " << i << " of " << list.size() << ", key " << key;
  }
}

TEST(Lists, WithoutALastKey) { expect_rows({5, 64, 3, -1}, {.table = {2, 3}, .length = 90}); }
TEST(Lists, OfOneKey) { expect_rows({70}, {.table = {2, 3}, .length = 90}); }
TEST(Lists, OfAPageThatMoved) { expect_rows({5, 130, 64, 3, -1}, {.table = {2, 7, 4}, .length = 190}); }
TEST(Lists, OfKeysThatDoNotExist) { expect_rows({5, 200, 64, -1}, {.table = {2, 3}, .length = 64}); }

}  // namespace
}  // namespace flashbook::testing
