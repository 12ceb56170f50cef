/// \file
/// A mask pair by pair.
#pragma once
#include "common/features/array.h"

namespace flashbook {

/// A mask pair by pair.
struct Dense {
  int heads = 1;                      ///< 1, or heads
  Array<unsigned char> visible = {};  ///< [batch, heads, seqlen_q, seqlen_k], 0: hidden

  bool empty() const { return visible.empty(); }  ///< there is no such mask
  bool operator==(const Dense&) const = default;
};

}  // namespace flashbook
