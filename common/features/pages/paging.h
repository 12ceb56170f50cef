/// \file
/// Keys and values in pages.
#pragma once
#include "common/features/array.h"

namespace flashbook {

/// Keys and values in pages of a few rows each, in any order: [pages, kv_heads, rows, head_dim].
struct Paging {
  int rows = 0;           ///< rows per page; 0 means contiguous
  int pages = 0;          ///< number of pages, used or not
  Array<int> table = {};  ///< [batch, ceil(seqlen_k / rows)]: the pages of a sequence's rows. Neither rows
                          ///< nor table entries past a sequence's length are read
  int shared = 0;  ///< keys of a prefix that all sequences share, in whole pages: every sequence contains all
                   ///< of it, in the same pages. A kernel may read it once
  /// [batch], the number of rows before a sequence's first key in its part of K and V, which are not read.
  /// Pages, if any, then hold whole sequences. Empty: none.
  Array<int> paddings = {};

  bool operator==(const Paging&) const = default;
};

}  // namespace flashbook
