/// \file
/// Pages of a cache, and how many hold each.
#pragma once
#include <stdexcept>
#include <vector>

namespace flashbook::decoding {

/// There are not enough free pages. Nothing was changed. To cure this, drop sequences, evict
/// prefixes (PrefixTree::evict), or make the pool larger.
struct OutOfPages : std::runtime_error {
  OutOfPages(int needed, int free, int pages);

  int needed, free, pages;
};

/// Numbers of pages, and how many holders each has: sequences and the tree of prefixes. It has no memory: the
/// owner of keys and values decides where page i is. A page without holders is free.
class PagePool {
 public:
  /// `rows` are keys of a page. Both at least 1, or std::invalid_argument.
  PagePool(int pages, int rows);

  /// Returns a free page, which the caller holds. Throws OutOfPages.
  int take();
  /// Adds a holder to a page that already has one.
  void hold(int page);
  /// Removes a holder. The last one frees the page.
  void drop(int page);

  int holders(int page) const { return holders_.at(page); }
  int pages() const { return int(holders_.size()); }
  int free_pages() const { return int(free_.size()); }
  int rows() const { return rows_; }

 private:
  int rows_;
  std::vector<int> holders_;
  std::vector<int> free_;  // a stack: the page that was freed last is likeliest to be in a cache still
};

}  // namespace flashbook::decoding
