/// \file
/// A mask that lists every pair.
#pragma once
#include "common/features/array.h"

namespace flashbook {

/// A mask that lists every pair.
struct Dense {
  int heads = 1;                      ///< 1, or heads
  Array<unsigned char> visible = {};  ///< [batch, heads, seqlen_q, seqlen_k], 0: hidden

  bool empty() const { return visible.empty(); }  ///< whether there is no such mask
  bool operator==(const Dense&) const = default;
};

}  // namespace flashbook
