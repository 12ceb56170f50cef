/// \file
/// Keys and values in pages.
#pragma once
#include "common/features/array.h"

namespace flashbook {

/// Keys and values in pages of a few rows each, in any order: [pages, kv_heads, rows, head_dim].
struct Paging {
  int rows = 0;           ///< rows per page; 0 means contiguous
  int pages = 0;          ///< number of pages, used or not
  Array<int> table = {};  ///< [batch, ceil(seqlen_k / rows)]: which page has a sequence's next rows. What
                          ///< lies beyond a sequence's length is never read, the table's entries neither
  int shared = 0;  ///< keys of a prefix that all sequences share, whole pages: every sequence has all of
                   ///< them, and they lie in the same pages. A kernel may read them once
  /// [batch], rows of a sequence's part of K and V before its first key, which are not read. There are pages
  /// of whole sequences then, or none. Empty: none.
  Array<int> paddings = {};

  bool operator==(const Paging&) const = default;
};

}  // namespace flashbook
