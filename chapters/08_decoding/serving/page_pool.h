/// \file
/// The pages of a cache, and their reference counts.
#pragma once
#include <stdexcept>
#include <vector>

namespace flashbook::decoding {

/// There are not enough free pages. Nothing was changed. Drop sequences, or make the pool larger.
struct OutOfPages : std::runtime_error {
  OutOfPages(int needed, int free, int pages);

  int needed, free, pages;
};

/// Page numbers and the number of sequences that hold each. The pool owns no memory: the owner of keys and
/// values decides where page i is. A page without holders is free.
class PagePool {
 public:
  /// `rows` is the number of keys per page. Throws std::invalid_argument unless both are at least 1.
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
  std::vector<int> free_;  // a stack: the page freed last is most likely still in a cache
};

}  // namespace flashbook::decoding
