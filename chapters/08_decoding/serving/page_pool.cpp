#include "chapters/08_decoding/serving/page_pool.h"

#include <numeric>
#include <string>

namespace flashbook::decoding {

OutOfPages::OutOfPages(int needed, int free, int pages)
    : std::runtime_error("the cache needs " + std::to_string(needed) + " pages and has " +
                         std::to_string(free) + " free of " + std::to_string(pages) +
                         ": drop sequences, or make it larger"),
      needed(needed),
      free(free),
      pages(pages) {}

PagePool::PagePool(int pages, int rows) : rows_(rows) {
  if (pages < 1 || rows < 1)
    throw std::invalid_argument("a pool of " + std::to_string(pages) + " pages of " + std::to_string(rows) +
                                " rows: give at least 1 of each");
  holders_.assign(pages, 0);
  free_.resize(pages);
  std::iota(free_.rbegin(), free_.rend(), 0);  // page 0 is taken first
}

int PagePool::take() {
  if (free_.empty()) throw OutOfPages(1, 0, pages());
  const int page = free_.back();
  free_.pop_back();
  holders_[page] = 1;
  return page;
}

void PagePool::hold(int page) {
  if (holders(page) == 0) throw std::logic_error("page " + std::to_string(page) + " is free: take it");
  ++holders_[page];
}

void PagePool::drop(int page) {
  if (holders(page) == 0) throw std::logic_error("page " + std::to_string(page) + " is free already");
  if (--holders_[page] == 0) free_.push_back(page);
}

}  // namespace flashbook::decoding
